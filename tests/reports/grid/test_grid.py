"""A grid on disk: runs are found, adopted, forked and resumed, and nothing is done twice."""

import json
import shutil
from dataclasses import replace

import pytest

from latentalign.errors import UserError
from latentalign.reports.grid import grid as grid_module
from latentalign.reports.grid.grid import Grid, is_complete
from latentalign.reports.grid.reproduce import collect, plan_jobs, reproduce
from latentalign.reports.grid.settings import GridSettings
from latentalign.reports.grid.study import find_task_studies
from latentalign.reports.paper import translation_measures as measures
from latentalign.reports.paper.translation_rows import SPECS
from latentalign.training.run.config_file import load_config
from latentalign.training.run.forking import fork_run
from latentalign.training.run.journal import read_metrics
from latentalign.training.trained_run import Run
from tests.reports.corpora import settings_for, write_data

ROWS = ("soft", "variational-sample")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    """Table 1 with two of its rows, done in this process."""
    folder = tmp_path_factory.mktemp("grid")
    settings = settings_for(data, folder / "runs", only=ROWS)
    content = reproduce("table1", settings, out=folder / "out", jobs=0, say=lambda text: None)
    return settings, folder, content


def refuse(*arguments, **options):
    raise AssertionError("done twice")


def test_the_table_is_complete(finished):
    _, folder, content = finished
    out = folder / "out"
    assert json.loads((out / "table1.json").read_text()) == json.loads(json.dumps(content))
    assert [row["row"] for row in content["rows"]] == list(ROWS)
    soft, variational = content["rows"]
    wanted = {
        "objective",
        "estimator",
        "seed",
        "inference",
        "ppl",
        "bleu",
        "prior_entropy",
        "minutes",
        "recipe",
    }
    assert wanted | {"version", "published", "changes", "epochs"} <= set(soft)
    assert (soft["inference"], variational["inference"]) == ("soft", "exact")
    assert "elbo" in variational
    assert "elbo" not in soft  # its inference network was never trained
    assert soft["published"] == {"ppl": 7.17, "bleu": 32.77, "prior_entropy": 1.24}
    assert content["significance"][0]["baseline"] == "soft"
    assert [group["seeds"] for group in content["summary"]] == [[1], [1]]
    assert str(folder) not in (out / "table1.json").read_text()  # nothing of this machine
    for name in ("table1.md", "table1.html", "README.md"):
        assert "7.17" in (out / name).read_text()


def test_cells_share_one_warm_up(finished):
    _, folder, _ = finished
    runs = sorted(path.parent.name for path in (folder / "runs").glob("*/config.yaml"))
    assert [name.rsplit("-", 2)[0] for name in runs if name.startswith("warmup")] == [
        "warmup-soft1", "warmup-soft1-wake1"
    ]  # fmt: skip
    assert runs[:1] + runs[1:2] == ["soft-s1", "variational-sample-s1"]
    phases = [
        line["phase"] for line in read_metrics(folder / "runs" / "variational-sample-s1" / "metrics.jsonl")
    ]
    assert phases == ["soft", "wake", "variational-reinforce"]
    log = (folder / "runs" / "variational-sample-s1" / "log.txt").read_text()
    assert log.count("resumed from") == 2  # forked twice on its way


def test_a_finished_cell_is_never_run_twice(finished, monkeypatch):
    settings, folder, content = finished
    monkeypatch.setattr(grid_module, "train", refuse)
    monkeypatch.setattr(measures, "evaluate_model", refuse)
    monkeypatch.setattr(Run, "translator", refuse)
    assert reproduce("table1", settings, out=folder / "again", jobs=0, say=lambda text: None) == content


def test_another_table_measures_without_training_and_reuses_measurements(finished, monkeypatch):
    settings, folder, _ = finished
    monkeypatch.setattr(grid_module, "train", refuse)
    specs, studies = find_task_studies("translation")
    grid = Grid(settings, specs)
    cells = grid.cells(studies["table2"].rows)
    jobs, _ = plan_jobs(grid, studies["table2"], cells)
    assert [job.name for job in jobs] == ["soft-s1", "variational-sample-s1"]
    content = reproduce("table2", settings, out=folder / "out2", jobs=0, say=lambda text: None)
    assert [(row["row"], row["inference"]) for row in content["rows"]] == [
        ("soft", "soft"), ("soft", "kmax:5"), ("variational-sample", "exact"), ("variational-sample", "kmax:5")
    ]  # fmt: skip
    curve = {(point["row"], point["inference"]): point["ppl"] for point in content["curve"]}
    assert len(curve) == 2 * 11
    rows = {(row["row"], row["inference"]): row["ppl"] for row in content["rows"]}
    for key in (("variational-sample", "exact"), ("variational-sample", "kmax:5"), ("soft", "kmax:5")):
        assert curve[key] == pytest.approx(rows[key], abs=1e-3)  # two ways to the same number
    assert (folder / "out2" / "table2-curve.png").stat().st_size > 1000


def test_other_conditions_are_measured_anew(finished):
    settings, _, _ = finished
    grid = Grid(settings, SPECS)
    cell = grid.cell("soft-s1")
    assert grid.recall(cell, "table1") is not None
    wider = GridSettings.from_json(settings.to_json().replace('"beam": 2', '"beam": 3'))
    assert Grid(wider, SPECS).recall(cell, "table1") is None


def test_finished_runs_of_others_are_adopted(finished, data, tmp_path, monkeypatch):
    _, folder, content = finished
    elsewhere = tmp_path / "elsewhere"
    ignored = shutil.ignore_patterns("checkpoints", "logs")
    shutil.copytree(folder / "runs" / "soft-s1", elsewhere / "mine", ignore=ignored)
    monkeypatch.setattr(grid_module, "train", refuse)
    adopting = settings_for(data, tmp_path / "runs", only=("soft",), adopt=(str(elsewhere),))
    found = reproduce("table1", adopting, out=tmp_path / "out", jobs=0, say=lambda text: None)
    assert found["rows"][0]["ppl"] == content["rows"][0]["ppl"]
    assert not list((tmp_path / "runs").glob("*/config.yaml"))


def test_results_of_another_machine_are_adopted_without_their_runs(finished, data, tmp_path, monkeypatch):
    _, folder, content = finished
    monkeypatch.setattr(grid_module, "train", refuse)
    adopting = settings_for(data, tmp_path / "runs", only=ROWS, adopt=(str(folder / "out"),))
    found = reproduce("table1", adopting, out=tmp_path / "out", jobs=0, say=lambda text: None)
    for part in ("rows", "history", "significance", "summary", "claims"):
        assert found[part] == json.loads(json.dumps(content[part]))
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("other", [{"beam": 3}, {"changes": ("model.dropout=0.25",)}], ids=["beam", "recipe"])
def test_results_under_other_conditions_are_not_adopted(finished, data, tmp_path, other):
    _, folder, _ = finished
    settings = settings_for(data, tmp_path / "runs", only=("soft",), adopt=(str(folder / "out"),))
    grid = Grid(settings, SPECS)
    assert grid.recall(grid.cell("soft-s1"), "table1") is not None
    grid = Grid(replace(settings, **other), SPECS)
    assert grid.recall(grid.cell("soft-s1"), "table1") is None


def test_another_run_in_the_way_is_not_touched(finished, data, tmp_path):
    _, folder, _ = finished
    other = settings_for(data, tmp_path / "runs", only=ROWS)
    grid = Grid(other, SPECS)
    shutil.copytree(folder / "runs" / "soft-s1", tmp_path / "runs" / "variational-sample-s1")
    with pytest.raises(UserError, match="variational-sample-s1: holds a run by another recipe"):
        grid.train(grid.cell("variational-sample-s1"))


def test_an_unfinished_run_goes_on(finished, data, tmp_path):
    _, folder, _ = finished
    source = folder / "runs" / "soft-s1"
    assert is_complete(source)
    half = tmp_path / "runs" / "soft-s1"
    grid = Grid(settings_for(data, tmp_path / "runs"), SPECS)
    warmup = next(path.parent for path in (folder / "runs").glob("warmup-soft1-[0-9a-f]*/config.yaml"))
    fork_run(warmup, half, schedule=grid.cell("soft-s1").recipe.schedule, epochs=3.0)
    assert not is_complete(half)
    assert grid.train(grid.cell("soft-s1")) == half
    assert is_complete(half)
    assert (half / "model.safetensors").read_bytes() == (source / "model.safetensors").read_bytes()
    assert load_config(half).training.epochs == 3.0


def test_rows_come_in_the_order_of_the_table_whatever_was_first(finished):
    settings, _, _ = finished
    specs, studies = find_task_studies("translation")
    grid = Grid(settings, specs)
    cells = grid.cells(studies["table1"].rows)
    rows = collect(grid, studies["table1"], cells[::-1])["rows"]
    assert [row["row"] for row in rows] == list(ROWS)


def test_mistakes(data, tmp_path):
    with pytest.raises(UserError, match="--only varational: no such row"):
        Grid(settings_for(data, tmp_path, only=("varational",)), SPECS).cells(("soft",))
    with pytest.raises(UserError, match="--only soft: no row of table3; choose one of variational-sample"):
        reproduce("table3", settings_for(data, tmp_path, only=("soft",)), out=tmp_path, jobs=0, say=print)
    with pytest.raises(UserError, match="reproduce table9: expected one of table1"):
        reproduce("table9", settings_for(data, tmp_path), out=tmp_path, jobs=0, say=print)
    with pytest.raises(UserError, match="expected a recipe of the task translation, found 'vqa'"):
        Grid(settings_for(data, tmp_path, recipe="vqa-scenes"), SPECS).cells(("soft",))
    with pytest.raises(UserError, match="--task music"):
        find_task_studies("music")
