"""The page of mathematics names classes, files and tests; each of them has to exist."""

import re
from pathlib import Path

import pytest

import latentalign.alignment

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "math.md").read_text(encoding="utf-8")


def named_tests(text: str) -> list[tuple[str, str]]:
    """(file, test) of every test named on the page; either may be empty."""
    parts = [part.partition("::") for part in re.findall(r"`([^`\n]*test_[^`\n]*)`", text)]
    return [(file, test) for file, _, test in parts]


@pytest.mark.parametrize(("file", "test"), sorted(set(named_tests(PAGE))))
def test_the_page_names_tests_that_exist(file: str, test: str) -> None:
    places = [*ROOT.glob(f"tests/**/{Path(file).name or 'test_*.py'}")]
    assert places, f"docs/math.md names {file}, which is not there"
    assert any(f"def {test}(" in place.read_text(encoding="utf-8") for place in places) or not test


def test_the_page_names_classes_that_exist() -> None:
    rows = re.findall(r"^\|.*\|$", PAGE, flags=re.MULTILINE)
    names = {name for row in rows for name in re.findall(r"`([A-Z][A-Za-z]+)`", row)}
    assert {"Soft", "Elbo", "Categorical"} <= names
    missing = {name for name in names if not hasattr(latentalign.alignment, name)}
    assert missing == set()


def test_the_page_names_files_that_exist() -> None:
    files = set(re.findall(r"`([a-z_/]+\.py)`", PAGE)) - {file for file, _ in named_tests(PAGE)}
    assert "latents/categorical.py" in files
    places = [ROOT / "src/latentalign/alignment", ROOT / "src/latentalign"]
    assert {file for file in files if not any((place / file).is_file() for place in places)} == set()


def test_a_wrong_name_would_be_found() -> None:
    assert named_tests("| `test_a.py::test_b`, `::test_c` | `test_d.py` |") == [
        ("test_a.py", "test_b"),
        ("", "test_c"),
        ("test_d.py", ""),
    ]
