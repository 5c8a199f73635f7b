"""Several processes: the same curve as one, one writer, and an end that is prompt and clear when one is lost."""

import csv
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from latentalign.training.run.checkpoints import list_checkpoints
from tests.training.helpers import (
    BASE,
    ROOT,
    call,
    command,
    environment,
    last_state,
    merge,
    metrics,
    run,
    same_training,
    weights,
)

# no dropout and no samples: then the split over processes changes nothing but rounding
SETTINGS: dict[str, Any] = {
    "data": {"train": 61, "batch": 8},  # the last batch of an epoch has 5 examples
    "model": {"dropout": 0.0},
    "schedule": [
        {"objective": "soft", "epochs": 2.0},
        {"objective": "wake", "epochs": 1.0, "train": "phi"},
        {"objective": "variational"},
    ],
    "training": {"epochs": 7.0, "log_every": 1, "checkpoint": {"every_steps": 10}},
}


def torchrun(processes: int = 2) -> tuple[str, ...]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return ("-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--master-port", str(port))


def write_recipe(folder: Path, settings: dict[str, Any]) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(merge(BASE, settings)))
    return path


def losses(folder: Path) -> list[float]:
    """The training loss of every step, as the loggers saw it."""
    (table,) = (folder / "logs" / "csv").rglob("metrics.csv")
    with table.open() as stream:
        return [float(row["train/loss"]) for row in csv.DictReader(stream) if row["train/loss"]]


def test_two_processes_learn_like_one(tmp_path: Path) -> None:
    run(tmp_path / "one", **SETTINGS)
    watch = {"COPY_WATCH": f"{tmp_path / 'writes'}:{tmp_path / 'two'}"}
    done = subprocess.run(
        command("train", write_recipe(tmp_path, SETTINGS), "--out", tmp_path / "two", launcher=torchrun()),
        cwd=ROOT,
        env=environment(**watch),
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    first, second = losses(tmp_path / "one"), losses(tmp_path / "two")
    assert len(first) == len(second) == 56
    torch.testing.assert_close(torch.tensor(second), torch.tensor(first), atol=1e-4, rtol=0)
    for name, tensor in weights(tmp_path / "one").items():
        torch.testing.assert_close(weights(tmp_path / "two")[name], tensor, atol=1e-4, rtol=0)
    for line, other in zip(metrics(tmp_path / "one"), metrics(tmp_path / "two"), strict=True):
        assert other["examples"] == line["examples"] == 16, "validation counts every example once"
        assert other["nll"] == pytest.approx(line["nll"], abs=1e-5)
    assert done.stdout.count("best_step") == 1, "one process speaks"
    assert (tmp_path / "writes.0").stat().st_size > 0
    assert (tmp_path / "writes.1").read_text() == "", "only the first process writes into the run"


@pytest.mark.slow
def test_accumulation_over_two_processes(tmp_path: Path) -> None:
    small = merge(SETTINGS, {"data": {"batch": 2}, "training": {"accumulate": 4}})
    run(tmp_path / "one", **SETTINGS)
    done = call("train", write_recipe(tmp_path, small), "--out", tmp_path / "two", launcher=torchrun())
    assert done.returncode == 0, done.stderr
    torch.testing.assert_close(
        torch.tensor(losses(tmp_path / "two")), torch.tensor(losses(tmp_path / "one")), atol=1e-4, rtol=0
    )


@pytest.mark.slow
def test_the_launcher_of_lightning(tmp_path: Path) -> None:
    settings = merge(SETTINGS, {"training": {"epochs": 3.0}})
    run(tmp_path / "one", **settings)
    done = call(
        "train", write_recipe(tmp_path, settings), "--out", tmp_path / "two", "--set", "training.devices=2"
    )
    assert done.returncode == 0, done.stderr
    torch.testing.assert_close(
        torch.tensor(losses(tmp_path / "two")), torch.tensor(losses(tmp_path / "one")), atol=1e-4, rtol=0
    )
    again = call("train", "--resume", tmp_path / "two", "--set", "training.epochs=4")
    assert again.returncode == 0, again.stderr
    assert last_state(tmp_path / "two")["place"]["step"] == 32


@pytest.mark.slow
def test_more_processes_than_examples(tmp_path: Path) -> None:
    settings = merge(SETTINGS, {"data": {"train": 9, "batch": 4}, "training": {"epochs": 3.0}})
    run(tmp_path / "one", **settings)
    recipe = write_recipe(tmp_path, settings)
    done = call("train", recipe, "--out", tmp_path / "three", launcher=torchrun(3))
    assert done.returncode == 0, done.stderr
    torch.testing.assert_close(
        torch.tensor(losses(tmp_path / "three")), torch.tensor(losses(tmp_path / "one")), atol=1e-4, rtol=0
    )


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    """torchrun in a session of its own, so that its processes can be found and ended."""
    return subprocess.Popen(
        command(*arguments, launcher=torchrun()),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def workers(parent: int) -> dict[int, int]:
    """Rank -> process id of torchrun's children."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            status = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            if int(status[1]) == parent:
                variables = dict(
                    part.split("=", 1) for part in (entry / "environ").read_text().split("\0") if "=" in part
                )
                found[int(variables["RANK"])] = int(entry.name)
        except (OSError, KeyError, IndexError, ValueError):
            continue
    return found


def wait_for_checkpoint(folder: Path, process: subprocess.Popen[str], seconds: float = 1200) -> None:
    deadline = time.monotonic() + seconds
    while not list_checkpoints(folder):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_lost_worker_ends_the_run_promptly(tmp_path: Path, rank: int) -> None:
    settings = merge(SETTINGS, {"data": {"slow": 0.05}, "training": {"checkpoint": {"every_steps": 3}}})
    run(tmp_path / "one", **SETTINGS)
    process = start("train", write_recipe(tmp_path, settings), "--out", tmp_path / "two")
    wait_for_checkpoint(tmp_path / "two", process)
    os.kill(workers(process.pid)[rank], signal.SIGKILL)
    killed = time.monotonic()
    _, errors = process.communicate(timeout=600)
    assert time.monotonic() - killed < 60
    assert process.returncode != 0
    assert "another process of the run was lost" in errors
    assert "--resume" in errors
    assert list_checkpoints(tmp_path / "two")
    resumed = call("train", "--resume", tmp_path / "two", launcher=torchrun())
    assert resumed.returncode == 0, resumed.stderr
    for name, tensor in weights(tmp_path / "one").items():
        torch.testing.assert_close(weights(tmp_path / "two")[name], tensor, atol=1e-4, rtol=0)


@pytest.mark.slow
def test_a_signal_to_the_launcher_saves_and_two_processes_resume_bit_for_bit(tmp_path: Path) -> None:
    sampled = {"schedule": [{"objective": {"name": "variational", "estimator": "reinforce"}}]}
    settings = merge(SETTINGS, {**sampled, "model": {"dropout": 0.3}, "training": {"epochs": 4.0}})
    recipe = write_recipe(tmp_path, settings)
    whole = call("train", recipe, "--out", tmp_path / "whole", launcher=torchrun())
    assert whole.returncode == 0, whole.stderr
    process = start(
        "train",
        recipe,
        "--out",
        tmp_path / "two",
        "--set",
        "data.slow=0.05",
        "--set",
        "training.checkpoint.every_steps=2",
    )
    wait_for_checkpoint(tmp_path / "two", process)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=600)
    assert "the state is saved; go on with: latentalign train --resume" in errors
    assert last_state(tmp_path / "two")["place"]["step"] < 32
    (tmp_path / "two" / "config.yaml").write_text((tmp_path / "whole" / "config.yaml").read_text())
    resumed = call("train", "--resume", tmp_path / "two", launcher=torchrun())
    assert resumed.returncode == 0, resumed.stderr
    assert same_training(tmp_path / "two", tmp_path / "whole")


@pytest.mark.slow
def test_bad_numbers_on_one_process_end_all_with_one_line(tmp_path: Path) -> None:
    settings = merge(SETTINGS, {"data": {"poison": 20}})
    done = call("train", write_recipe(tmp_path, settings), "--out", tmp_path / "two", launcher=torchrun())
    assert done.returncode != 0
    told = [line for line in done.stderr.splitlines() if line.startswith("latentalign:")]
    assert len(told) == 1
    assert "the batch itself has" in told[0]
    assert "batch: examples" in told[0]
    assert "exitcode  : 70" in done.stderr


@pytest.mark.slow
def test_a_mistake_is_told_once(tmp_path: Path) -> None:
    settings = merge(SETTINGS, {"data": {"missing": True}})
    done = call("train", write_recipe(tmp_path, settings), "--out", tmp_path / "two", launcher=torchrun())
    assert done.returncode != 0
    assert done.stderr.count("train.txt: no such file") == 1
    assert not (tmp_path / "two").exists()
