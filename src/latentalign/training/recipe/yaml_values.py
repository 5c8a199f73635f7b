"""YAML as recipes use it: plain values only, with line numbers in error messages."""

import re
from pathlib import Path
from typing import Any

import yaml

from latentalign.errors import UserError


class _Loader(yaml.SafeLoader):
    """Safe YAML that reads 1e-3 as a number, as everybody means it, and refuses a key given twice."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9][0-9_]*)(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def _mapping_without_repeats(loader: Any, node: Any) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"key {key!r} is given twice", key_node.start_mark
            )
        seen.add(key)
    return yaml.SafeLoader.construct_mapping(loader, node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping_without_repeats)


def parse_yaml(text: str, place: str) -> Any:
    """The value of a YAML text; a syntax error names the place."""
    try:
        return yaml.load(text, Loader=_Loader)  # a SafeLoader: builds plain values only
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise UserError(f"{place}{line}: expected YAML, {problem}") from None


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file that holds a mapping."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{path}: expected YAML in UTF-8, found other bytes") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    values = parse_yaml(text, str(path))
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected a mapping of recipe keys, found {type(values).__name__}")
    return values
