"""Whatever ends a run, resuming gives exactly what an uninterrupted run gives."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from latentalign.errors import UserError
from latentalign.training.run.checkpoints import list_checkpoints
from latentalign.training.run.journal import read_metrics
from latentalign.training.run.stopping import Interrupted
from tests.training import copying
from tests.training.helpers import (
    last_state,
    metrics,
    run,
    same_training,
    weights,
)

# everything that has a state: dropout, samples, a running mean, phases, a rate that is lowered, early stopping
SETTINGS: dict[str, Any] = {
    "schedule": [
        {"objective": "soft", "epochs": 0.7},
        {"objective": "wake", "epochs": 0.6, "train": "phi"},
        {
            "objective": {
                "name": "variational",
                "estimator": {"name": "reinforce", "baseline": "running-mean"},
            }
        },
    ],
    "training": {
        "epochs": 3.0,
        "learning_rate": 0.1,
        "validate_every": 0.4,
        "early_stopping": {"patience": 20},
        "checkpoint": {"every_steps": 3, "every_minutes": None},
    },
}


class Crash(Exception):
    """Something nobody foresaw."""


def crash_at(monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """Let the n-th call of collate fail, as if the process had died there."""
    original = copying.CopyData.collate
    seen = [0]

    def collate(self: copying.CopyData, indices: list[int]) -> Any:
        seen[0] += 1
        if seen[0] == calls:
            raise Crash
        return original(self, indices)

    monkeypatch.setattr(copying.CopyData, "collate", collate)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nothing interrupts."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run(folder, **SETTINGS)
    assert any(not line["best"] for line in metrics(folder)), "the rate is lowered on the way"
    assert last_state(folder)["learning"]["rate"] < 0.1
    return folder


@pytest.mark.parametrize("calls", [2, 8, 15, 30])
def test_a_resumed_run_ends_bit_for_bit_like_the_whole_one(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    with monkeypatch.context() as patch:
        crash_at(patch, calls)
        with pytest.raises(Crash):
            run(tmp_path / "run", **SETTINGS)
    run(tmp_path / "run", resume=True, **SETTINGS)
    assert same_training(tmp_path / "run", whole)


def test_many_crashes_in_one_run(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for calls in (9, 7, 12):
        with monkeypatch.context() as patch:
            crash_at(patch, calls)
            with pytest.raises(Crash):
                run(tmp_path / "run", resume=True, **SETTINGS)
    run(tmp_path / "run", resume=True, **SETTINGS)
    assert same_training(tmp_path / "run", whole)


def test_a_damaged_newest_checkpoint_is_named_and_skipped(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        crash_at(patch, 22)
        with pytest.raises(Crash):
            run(tmp_path / "run", **SETTINGS)
    newest, before = (path for _, path in list_checkpoints(tmp_path / "run")[:2])
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    run(tmp_path / "run", resume=True, **SETTINGS)
    log = (tmp_path / "run" / "log.txt").read_text()
    assert f"checkpoint {newest.name} is damaged" in log
    assert f"resumed from {before.name}" in log
    assert newest.with_name(f"{newest.name}.damaged").is_file()
    assert same_training(tmp_path / "run", whole)


def test_if_all_checkpoints_are_damaged_the_run_starts_again(whole: Path, tmp_path: Path) -> None:
    run(tmp_path / "run", **{**SETTINGS, "training": {**SETTINGS["training"], "epochs": 0.6}})
    for _, path in list_checkpoints(tmp_path / "run"):
        path.write_bytes(path.read_bytes()[:100])
    run(tmp_path / "run", resume=True, **SETTINGS)
    assert "no good checkpoint" in (tmp_path / "run" / "log.txt").read_text()
    assert same_training(tmp_path / "run", whole)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_tells_how_to_go_on(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    original = copying.CopyData.collate
    seen = [0]

    def collate(self: copying.CopyData, indices: list[int]) -> Any:
        seen[0] += 1
        if seen[0] == 12:
            os.kill(os.getpid(), number)
        return original(self, indices)

    before = signal.getsignal(number)
    with monkeypatch.context() as patch:
        patch.setattr(copying.CopyData, "collate", collate)
        with pytest.raises(Interrupted, match=f"{number.name}.*latentalign train --resume .*run") as caught:
            run(tmp_path / "run", **SETTINGS)
    assert caught.value.code == 75
    assert signal.getsignal(number) == before, "signals go back to whoever had them"
    run(tmp_path / "run", resume=True, **SETTINGS)
    assert same_training(tmp_path / "run", whole)


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    trained = run(tmp_path / "run", training={"epochs": 0.5})
    again = run(tmp_path / "run", resume=True, training={"epochs": 0.5})
    assert (again.steps, again.best) == (trained.steps, trained.best)
    assert "training is complete" in (tmp_path / "run" / "log.txt").read_text()


def test_a_finished_run_may_go_on_for_longer(tmp_path: Path) -> None:
    run(tmp_path / "long", training={"epochs": 2.0})
    run(tmp_path / "run", training={"epochs": 1.0})
    run(tmp_path / "run", resume=True, training={"epochs": 2.0})
    assert same_training(tmp_path / "run", tmp_path / "long")


@pytest.mark.parametrize("kept", ["best", "last"])
def test_a_run_ends_with_its_best_weights_or_its_last(tmp_path: Path, kept: str) -> None:
    rising = {"learning_rate": 2.0, "halving": {"factor": 1.0}, "validate_every": 0.25, "keep_weights": kept}
    run(tmp_path / "run", training=rising)
    assert not metrics(tmp_path / "run")[-1]["best"], "the last validation is not the best one"
    last = {
        name.removeprefix("model."): value
        for name, value in last_state(tmp_path / "run")["state_dict"].items()
    }
    found = weights(tmp_path / "run")
    assert found.keys() <= last.keys()
    assert all(torch.equal(found[name], last[name]) for name in found) == (kept == "last")


def test_a_run_that_stopped_early_goes_on_with_more_patience(tmp_path: Path) -> None:
    worse = {"learning_rate": 2.0, "halving": {"factor": 1.0}, "validate_every": 0.25, "epochs": 8.0}
    first = run(tmp_path / "run", training={**worse, "early_stopping": {"patience": 2}})
    assert first.epochs < 8.0
    assert "training ends" in (tmp_path / "run" / "log.txt").read_text()
    same = run(tmp_path / "run", resume=True, training={**worse, "early_stopping": {"patience": 2}})
    assert same.steps == first.steps
    more = run(tmp_path / "run", resume=True, training={**worse, "early_stopping": {"patience": 4}})
    assert more.steps > first.steps


def test_another_learning_rate_counts_from_the_resumption_on(tmp_path: Path) -> None:
    run(tmp_path / "run", training={"epochs": 0.5, "learning_rate": 0.02})
    run(tmp_path / "run", resume=True, training={"epochs": 1.0, "learning_rate": 0.001})
    assert metrics(tmp_path / "run")[-1]["learning_rate"] == 0.001
    assert last_state(tmp_path / "run")["optimizer_states"][0]["param_groups"][0]["lr"] == 0.001


def test_other_data_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / "run", training={"epochs": 0.5})
    monkeypatch.setattr(copying, "LABELS", 6)
    with pytest.raises(UserError, match=r"labels\.txt would come out differently"):
        run(tmp_path / "run", resume=True, training={"epochs": 1.0})
    monkeypatch.undo()
    with pytest.raises(UserError, match="began with 64 training examples, now there are 32"):
        run(tmp_path / "run", resume=True, data={"train": 32}, training={"epochs": 1.0})


def test_lines_of_metrics_that_were_cut_off_or_come_again_are_dropped(tmp_path: Path) -> None:
    run(tmp_path / "run", training={"epochs": 1.0, "validate_every": 0.5})
    path = tmp_path / "run" / "metrics.jsonl"
    lines = path.read_text()
    path.write_text(lines + '{"step": 99, "nll": 1.0}\n{"step": 1')
    assert len(read_metrics(path)) == 3
    run(tmp_path / "run", resume=True, training={"epochs": 1.5, "validate_every": 0.5})
    assert [line["step"] for line in read_metrics(path)] == [4, 8, 12]
