"""Run folders that an earlier version wrote still load, say the same and go on (tests/frozen)."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import latentalign as la
from latentalign.errors import UserError
from latentalign.text.links import format_links
from latentalign.text.parallel import read_parallel
from latentalign.training.recipe.recipes import build_recipe
from latentalign.training.recipe.yaml_values import read_yaml
from latentalign.training.run.journal import read_metrics

FROZEN = Path(__file__).parents[2] / "frozen"
EXPECTED: dict[str, Any] = json.loads((FROZEN / "expected.json").read_text(encoding="utf-8"))
TEST = FROZEN / "data" / "test.de", FROZEN / "data" / "test.en"


def test_translations_links_and_scores() -> None:
    run = la.load(FROZEN / "translation", device="cpu")
    pairs = list(read_parallel(*TEST))
    translator = run.translator(beam=3, max_length_factor=0.5)
    found = [best[0].text for best in translator.translate([source for source, _ in pairs])]
    assert found == EXPECTED["translations"]
    for by in ("posterior", "exact"):
        assert [format_links(one.links) for one in run.align(pairs, by=by)] == EXPECTED[by]
    assert EXPECTED["posterior"] != EXPECTED["exact"]
    assert run.score(pairs) == pytest.approx(EXPECTED["scores"], rel=1e-4)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("translation", {"source": TEST[0], "target": TEST[1]}),
        ("memory", {"data": FROZEN / "memory" / "stories", "split": "valid"}),
        ("vqa", {"split": "test"}),
        ("gaussian", {}),
    ],
)
def test_measures(name: str, data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the VQA run draws its scenes anew
    found = la.load(FROZEN / name, device="cpu").evaluate(**data)
    assert {key: found[key] for key in EXPECTED[name]} == pytest.approx(EXPECTED[name], rel=1e-4, abs=1e-6)


def test_an_old_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(FROZEN / "translation", tmp_path / "run")
    monkeypatch.chdir(FROZEN)  # its recipe names the folder `data`
    la.train(resume=tmp_path / "run", set={"training.epochs": 14}, quiet=True)
    last = read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]
    assert last["step"] == 42
    assert {key: last[key] for key in EXPECTED["resumed"]} == pytest.approx(
        EXPECTED["resumed"], rel=1e-3, abs=1e-4
    )


@pytest.mark.parametrize("key", ["optimizer", "strategy"])
def test_settings_that_are_gone_are_read_in_runs_but_refused_in_recipes(key: str) -> None:
    values = read_yaml(FROZEN / "translation" / "config.yaml")
    assert key in values["training"]
    with pytest.raises(UserError, match=f"training.{key}: unknown key"):
        build_recipe({**values, "training": {key: values["training"][key]}})
