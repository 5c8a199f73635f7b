"""One word, one meaning: the glossary names what exists, no class has a namesake, and no identifier is a metaphor."""

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import latentalign

ROOT = Path(latentalign.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "glossary.md"

# words of everyday life that hid what a thing is, and the word of the field for each
METAPHORS = {
    "race": "candidates",
    "front": "candidates",
    "standing": "evaluated positions",
    "look": "evaluate, read",
    "reach": "upper bound",
    "guess": "estimate",
    "ceiling": "upper bound",
    "desk": "service",
    "guard": "middleware",
    "gallery": "images",
    "door": "entry, exit codes",
    "worker": "process",
    "sitting": "session",
}
# names that mean what the word says: a part of a sentence that comes first, phases and states that one gets to
LITERAL = {"in_front", "fronted", "reached"}
# one thing in two layers: as the library has it, and as the server or a report writes it
SAME_THING = {"Link", "Pair", "Phase", "Row", "Say"}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(ROOT.rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def identifiers(path: str, tree: ast.Module) -> Iterator[str]:
    """Every name that a module gives to something, its own included."""
    yield Path(path).stem
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def words_of(name: str) -> set[str]:
    """`_LookedAt`, `look_at` -> {look, looked, at}: the parts of a name, plurals and participles as their stems."""
    found = set()
    for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name):
        word = part.lower()
        found |= {word, *(word.removesuffix(ending) for ending in ("s", "es", "ed", "ing"))}
    return found


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("_LookedAt", "look"),
        ("races", "race"),
        ("upper_reach", "reach"),
        ("GUESSES", "guess"),
        ("sittings", "sitting"),
    ],
)
def test_words_are_found_inside_names(name: str, word: str) -> None:
    assert word in words_of(name)
    assert not words_of("outlook_trace_breach") & set(METAPHORS)


def test_no_identifier_is_a_metaphor() -> None:
    wrong = []
    for path, tree in modules():
        for name in sorted(set(identifiers(path, tree))):
            for word in words_of(name) & set(METAPHORS):
                if name not in LITERAL:
                    wrong.append(f"{path}: {name}: say what it is ({METAPHORS[word]})")
    assert not wrong, "\n".join(wrong)


def types(tree: ast.Module) -> Iterator[str]:
    """Classes, and names of types such as `Pair = tuple[str, str]`; not the variables of generic functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if re.fullmatch("([A-Z][a-z]+)+", name) and "TypeVar(" not in ast.unparse(node.value):
                yield name


def test_types_are_found() -> None:
    tree = ast.parse(
        "class A: pass\nclass _B: pass\nPair = tuple[str, str]\nItem = TypeVar('Item')\nMOST = 3"
    )
    assert list(types(tree)) == ["A", "Pair"]


def test_no_two_types_share_a_name() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path, tree in modules():
        for name in types(tree):
            homes[name].append(path)
    assert homes.keys() >= SAME_THING
    doubled = {name: paths for name, paths in homes.items() if len(paths) > 1 and name not in SAME_THING}
    assert not doubled


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] != "word"]


def test_every_word_stands_once() -> None:
    words = [row[0] for row in rows()]
    assert len(words) > 30
    assert len(set(words)) == len(words)
    assert all(len(row) == 3 and row[1] for row in rows())


@pytest.mark.parametrize("name", [row[2].strip("`") for row in rows() if row[2]])
def test_what_the_glossary_names_exists(name: str) -> None:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name
