"""YAML as recipes use it: plain values only, of bounded size, with line numbers in error messages."""

import math
import re
from pathlib import Path
from typing import Any

import yaml

from latentalign.errors import UserError, one_line
from latentalign.files import refuse_other_encodings, require_file

LARGEST_FILE = 4 * 2**20  # bytes; the longest recipe of ours has 4 thousand
LARGEST_NUMBER = 2**53  # beyond it a float is no whole number any more
MOST_VALUES = 50_000  # a few aliases of aliases can stand for billions
DEEPEST = 20
_MERGE = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """Safe YAML that reads 1e-3 as a number and refuses a key given twice."""

    def fetch_flow_collection_start(self, token: Any) -> None:
        self._check_depth(self.flow_level)
        super().fetch_flow_collection_start(token)

    def add_indent(self, column: int) -> bool:
        self._check_depth(len(self.indents))
        return bool(super().add_indent(column))

    def _check_depth(self, depth: int) -> None:
        # the parser recurses at every level, and its search for keys takes time that grows with the square
        if depth > 2 * DEEPEST:
            raise yaml.scanner.ScannerError(
                None, None, f"found more than {2 * DEEPEST} levels", self.get_mark()
            )

    def flatten_mapping(self, node: Any) -> None:
        super().flatten_mapping(node)
        if len(node.value) > MOST_VALUES // 10:  # before the next level multiplies it
            raise yaml.constructor.ConstructorError(
                None, None, f"more than {MOST_VALUES // 10} keys merged by <<", node.start_mark
            )


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9][0-9_]*)(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def _mapping_without_repeats(loader: Any, node: Any) -> dict[Any, Any]:
    seen: set[str] = set()
    for key_node, _ in node.value:
        if key_node.tag == _MERGE:  # `<<: *other` takes the keys of another mapping
            continue
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            problem = f"expected a word as a key, found {type(key).__name__} {one_line(repr(key))[:40]}"
            raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"key {key!r} is given twice", key_node.start_mark
            )
        seen.add(key)
    return yaml.SafeLoader.construct_mapping(loader, node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping_without_repeats)


def parse_yaml(text: str, place: str) -> Any:
    """The value of a YAML text; what is no YAML, or no value that a recipe can use, is refused by its place."""
    try:
        values = yaml.load(text, Loader=_Loader)  # a SafeLoader: builds plain values only
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or one_line(str(error))
        raise UserError(f"{place}{line}: expected YAML, {problem}") from None
    except RecursionError:
        raise UserError(f"{place}: expected YAML of at most {DEEPEST} levels, found many more") from None
    except (ValueError, TypeError, OverflowError, LookupError, AttributeError) as error:
        # raised by PyYAML's own readers of dates, numbers and the like
        raise UserError(
            f"{place}: expected YAML, found a value that is none ({one_line(str(error))})"
        ) from None
    check_plain(values, place)
    return values


def check_plain(values: Any, place: str) -> None:
    """Refuse values that no setting can have, at any depth."""
    waiting: list[tuple[str, Any, int]] = [("", values, 0)]
    count = 0
    while waiting:
        key, value, depth = waiting.pop()
        count += 1
        where = f"{place}, {key}" if key else place
        if count > MOST_VALUES:
            raise UserError(
                f"{place}: stands for more than {MOST_VALUES} values; write them out, without aliases"
            )
        if depth > DEEPEST:
            raise UserError(f"{where[:100]}: expected at most {DEEPEST} levels, found more")
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{where}: expected a finite number, received {value}")
        if isinstance(value, int | float) and abs(value) > LARGEST_NUMBER:
            raise UserError(f"{where}: expected a number up to 2^53, received {str(value)[:40]}")
        if isinstance(value, str) and ("\0" in value or not value.isascii()):
            _check_text(value, where)
        inside: list[tuple[Any, Any]] = []
        if isinstance(value, dict):
            inside = list(value.items())
        elif isinstance(value, list | tuple | set):
            inside = list(enumerate(value))
        waiting += [(f"{key}.{name}" if key else str(name), part, depth + 1) for name, part in inside]


def _check_text(text: str, where: str) -> None:
    if "\0" in text:  # no name of a file has one
        raise UserError(f"{where}: expected text, found the character NUL in it")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        found = ascii(text[error.start])
        raise UserError(f"{where}: expected text, found {found}, which is half of a character") from None


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file that holds a mapping."""
    require_file(path, "a YAML file")
    if path.stat().st_size > LARGEST_FILE:
        raise UserError(f"{path}: expected a recipe, found a file of {path.stat().st_size:,} bytes")
    content = path.read_bytes()
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        refuse_other_encodings(content, str(path))
        raise UserError(f"{path}: expected YAML in UTF-8, found other bytes") from None
    values = parse_yaml(text, str(path))
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected a mapping of recipe keys, found {type(values).__name__}")
    return values
