"""Every published result says which recipe and revision it is by; pages say which are older than their recipes."""

import json
import re
from pathlib import Path

import pytest

from latentalign.reports.provenance import RECIPES, Checked, check_results, fingerprint_of, write_recipes
from latentalign.training.recipe.recipes import load_recipe

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
MARK = "of an earlier revision"


@pytest.fixture(scope="module")
def checked() -> list[Checked]:
    return list(check_results(RESULTS))


def older(checked: list[Checked]) -> dict[Path, set[str]]:
    """Folders with results that today's recipes would not give, and the revisions of those."""
    found: dict[Path, set[str]] = {}
    for one in checked:
        if not one.is_current:
            found.setdefault(one.file.parent, set()).add(one.revision[:7])
    return found


@pytest.mark.parametrize(
    "path",
    sorted(path for path in RESULTS.rglob("*.json") if path.name != RECIPES),
    ids=lambda path: path.stem,
)
def test_every_result_has_a_revision(path: Path) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    rows = [
        row for key in ("runs", "rows", "babi", "worlds") for row in content.get(key, []) if "recipe" in row
    ]
    assert all(row["revision"] and re.fullmatch("[0-9a-f]{16}", row["fingerprint"]) for row in rows)
    assert rows or content["revision"]


def test_recipes_are_what_their_fingerprints_say(checked: list[Checked]) -> None:
    assert len(checked) > 40
    for path in RESULTS.rglob(RECIPES):
        for fingerprint, values in json.loads(path.read_text(encoding="utf-8")).items():
            assert fingerprint_of(values) == fingerprint


def test_a_page_says_which_of_its_results_are_older_than_their_recipes(checked: list[Checked]) -> None:
    for folder, revisions in older(checked).items():
        page = (folder / "README.md").read_text(encoding="utf-8")
        assert MARK in page, f"{folder}: say “{MARK}”"
        for revision in revisions:
            assert revision in page, f"{folder}: name the revision {revision}"


def test_the_readme_shows_current_results_only(checked: list[Checked]) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    linked = {RESULTS / name for name in re.findall(r"docs/results/(\w+)/README\.md", readme)}
    assert len(linked) >= 5
    assert not linked & set(older(checked))


def write_result(folder: Path, **changes: object) -> None:
    from latentalign.reports.provenance import recipe_values

    values = recipe_values(load_recipe("demo"))
    write_recipes(folder, [values])
    row = {
        "row": "soft",
        "recipe": "demo",
        "revision": "abc",
        "fingerprint": fingerprint_of(values),
        **changes,
    }
    (folder / "table.json").write_text(json.dumps({"rows": [row]}))


def test_a_recipe_that_has_changed_is_noticed(tmp_path: Path) -> None:
    write_result(tmp_path)
    (found,) = check_results(tmp_path)
    assert found.is_current
    # as if the recipe said so today
    write_result(tmp_path, settings=["training.learning_rate=0.5", "seed=9"])
    (found,) = check_results(tmp_path)
    assert [line.split(":")[0] for line in found.differs] == ["training.learning_rate"]
    write_result(tmp_path, fingerprint="0" * 16)
    (found,) = check_results(tmp_path)
    assert found.differs == ("its recipe is not known",)


def test_where_and_how_fast_a_run_was_trained_does_not_count(tmp_path: Path) -> None:
    write_result(tmp_path, settings=["data.folder=/elsewhere", "training.threads=7", "training.log_every=3"])
    (found,) = check_results(tmp_path)
    assert found.is_current


def test_settings_that_are_new_since_have_their_defaults(tmp_path: Path) -> None:
    """A result from before a setting existed is current as long as the recipe leaves the setting alone."""
    write_result(tmp_path)
    path = tmp_path / RECIPES
    ((_, values),) = json.loads(path.read_text()).items()
    del values["training"]["gradient_clip"]
    path.write_text(json.dumps({fingerprint_of(values): values}))
    write_fingerprint = fingerprint_of(values)
    content = json.loads((tmp_path / "table.json").read_text())
    content["rows"][0]["fingerprint"] = write_fingerprint
    (tmp_path / "table.json").write_text(json.dumps(content))
    (found,) = check_results(tmp_path)
    assert found.is_current
    content["rows"][0]["settings"] = ["training.gradient_clip=1.5"]
    (tmp_path / "table.json").write_text(json.dumps(content))
    (found,) = check_results(tmp_path)
    assert not found.is_current
