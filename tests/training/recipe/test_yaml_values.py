"""Strange YAML: refused by its place, within a second, and what everybody expects to work does."""

import itertools
import time

import pytest

from latentalign.errors import UserError
from latentalign.training.recipe.yaml_values import LARGEST_FILE, parse_yaml, read_yaml


def bomb(first: str, level: str, names: str = "abcdefghijkl") -> str:
    """Nine aliases of nine aliases of nine ..."""
    lines = [f"a: &a {first}"]
    for before, name in itertools.pairwise(names):
        lines.append(f"{name}: &{name} " + level.replace("ALIASES", ", ".join([f"*{before}"] * 9)))
    return "\n".join(lines)


STRANGE = {
    "bomb of lists": (bomb("[x, x]", "[ALIASES]"), "values"),
    "bomb of merges": (bomb("{x: 1, y: 2}", "{<<: [ALIASES]}"), "merged"),
    "circle": ("a: &a [*a]", "recursive"),
    "list of itself": ("- &x [*x, *x]", "levels"),
    "brackets": ("[" * 20_000, "levels"),
    "braces": ("{a: " * 20_000, "levels"),
    "dashes": ("- " * 5_000 + "x", "levels"),
    "indentation": ("".join(f"{' ' * n}a:\n" for n in range(1_000)), "levels"),
    "list as a key": ("? [1, 2]\n: 3", "found list"),
    "mapping as a key": ("? {a: 1}\n: 2", "found dict"),
    "date as a key": ("2001-01-01: 3", "found date"),
    "number as a key": ("1: 2", "found int"),
    "nothing as a key": ("null: 3", "found NoneType"),
    "no date": ("a: 2001-99-99", "month"),
    "no timestamp": ("a: !!timestamp foo", "none"),
    "no truth": ("a: !!bool foo", "none"),
    "no number": ("a: !!int foo", "none"),
    "a number of 5,000 digits": ("a: " + "9" * 5_000, "digits"),
    "a number beyond 2^53": (
        "a: {b: [1, 100000000000000000000]}",
        r"P, a\.b\.1: expected a number up to 2\^53",
    ),
    "NaN": ("a: {b: .nan}", r"P, a\.b: expected a finite number, received nan"),
    "infinity": ("a: [-.inf]", r"P, a\.0: expected a finite number"),
    "overflow": ("a: 1e999", "finite"),
    "half a character": ('a: "\\ud800"', "half of a character"),
    "code": ("!!python/object/apply:os.system [x]", "constructor"),
    "control characters": ("a: \x00", "unacceptable"),
    "twice": ("a: 1\na: 2", "line 2.*given twice"),
    "merge of a number": ("<<: 3", "merging"),
}


@pytest.mark.parametrize("name", STRANGE)
def test_strange_yaml_is_refused_at_once(name):
    text, told = STRANGE[name]
    began = time.process_time()
    with pytest.raises(UserError, match=told) as caught:
        parse_yaml(text, "P")
    assert time.process_time() - began < 2
    assert str(caught.value).startswith("P")
    assert "\n" not in str(caught.value)


def test_merge_keys_simply_work():
    text = "base: &base {a: 1, b: 2}\nown:\n  <<: *base\n  b: 3\nboth:\n  <<: [*base, {c: 4}]\n"
    values = parse_yaml(text, "P")
    assert values["own"] == {"a": 1, "b": 3}
    assert values["both"] == {"a": 1, "b": 2, "c": 4}


def test_a_byte_order_mark_is_left_out(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("task: copy\n", encoding="utf-8-sig")
    assert read_yaml(path) == {"task": "copy"}


def test_files_that_are_no_recipes(tmp_path):
    path = tmp_path / "large.yaml"
    path.write_bytes(b" " * (LARGEST_FILE + 1))
    with pytest.raises(UserError, match="expected a recipe, found a file of"):
        read_yaml(path)
    with pytest.raises(UserError, match="is a folder"):
        read_yaml(tmp_path)
    for content, told in {b"\xff\xfe": "UTF-8", b"- 1": "mapping", b"": "NoneType", b"text": "str"}.items():
        path.write_bytes(content)
        with pytest.raises(UserError, match=told):
            read_yaml(path)
