"""The tables of memory networks: which figures are of which stories, and that one command goes on where it was."""

import json
from pathlib import Path

import pytest

from benchmarks import memory
from latentalign.memory.stories import format_story
from latentalign.memory.worlds import WorldsConfig, tell_stories
from latentalign.reports.provenance import check_results


def run(error: float, validation_error: float) -> memory.Run:
    figures = {"nll": error / 10, "prior_entropy": 1.0, "accuracy by pattern: where is …": 1 - error / 100}
    return {
        "accuracy": 1 - error / 100,
        "error": error,
        "validation_error": validation_error,
        **figures,
    }


def test_the_best_run_is_chosen_on_validation_and_means_are_of_the_test_part() -> None:
    row = memory.summarise({1: run(10.0, 21.0), 2: run(16.0, 19.0), 3: run(13.0, 20.0)})
    assert row["best_error"] == 16.0  # the test part would have chosen 10.0
    assert (row["error"], row["error_deviation"], row["validation_error"]) == pytest.approx((13.0, 3.0, 20.0))
    shown = memory.table([{"model": "end-to-end", **row}], part="test", published=True)
    assert "| test error | best of n by validation | published |" in shown[0]
    assert "| 3 | 20.0 % | 13.0 ± 3.0 % | 16.0 % (n = 3) | 12.4 % |" in shown[2]


def test_one_run_is_the_best_of_nothing() -> None:
    row = {"model": "path", **memory.summarise({2: run(10.0, 11.0)})}
    (line,) = memory.table([row], part="test", published=False)[2:]
    assert line.startswith("| path | 1 | 11.0 % | 10.0 % | – | 1.000 |")


def test_the_test_part_is_only_evaluated() -> None:
    train = memory.train_command("marginal", 1, data="train.txt", folder=Path("run"), more=[])
    assert not any("test.txt" in word for word in train)
    held_out, test = memory.evaluate_commands(Path("run"), data="train.txt", test="test.txt")
    assert held_out[-4:] == ["--data", "train.txt", "--split", "held-out"]
    assert test[-2:] == ["--data", "test.txt"]


@pytest.mark.slow
def test_one_command_trains_measures_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, seed in (("train", 1), ("test", 2)):
        stories = tell_stories(WorldsConfig(stories=40), seed=seed)
        lines = [line for story in stories for line in format_story(story)]
        (tmp_path / f"{name}.txt").write_text("\n".join(lines) + "\n")
    command = [
        "all", "--babi", str(tmp_path / "train.txt"), "--test", str(tmp_path / "test.txt"), "--only", "end-to-end",
        "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out"), "--set", "training.epochs=16", "--seeds", "1",
    ]  # fmt: skip
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.md").write_text("What was found.\n")
    memory.main(command)
    assert "latentalign train recipes" in capsys.readouterr().out
    assert "What was found." in (tmp_path / "out" / "README.md").read_text()
    (row,) = json.loads((tmp_path / "out" / "results.json").read_text())["babi"]
    (found,) = row["runs"].values()
    assert found["error"] == pytest.approx(100 * (1 - found["accuracy"]))
    assert found["examples"] > 40  # the whole test part, where a tenth of the stories is held out
    (checked,) = check_results(tmp_path / "out")
    assert checked.is_current  # the row says by which recipe and settings it can be had again
    memory.main([*command, "2"])
    trained = [
        line for line in capsys.readouterr().out.splitlines() if "--out" in line and "BABI" not in line
    ]
    assert len(trained) == 1  # seed 2 alone
