"""Train the toy task in this process or in another one."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from latentalign.training.recipe.overrides import merge
from latentalign.training.recipe.recipes import Recipe, build_recipe
from latentalign.training.run.checkpoints import list_checkpoints, load_checkpoint
from latentalign.training.run.journal import read_metrics
from latentalign.training.train import Trained, train
from tests.training import copying  # noqa: F401  registers the task

ROOT = Path(__file__).parents[2]
BASE: dict[str, Any] = {
    "task": "copy",
    "objective": "marginal",
    "training": {"epochs": 2.0, "learning_rate": 0.02, "log_every": 3, "checkpoint": {"every_minutes": None}},
}


def recipe(**sections: Any) -> Recipe:
    """The toy recipe with these differences."""
    return build_recipe(merge(BASE, sections))


def run(folder: Path, *, resume: bool = False, overwrite: bool = False, **sections: Any) -> Trained:
    """Train the toy recipe with these differences."""
    return train(recipe(**sections), folder, resume=resume, overwrite=overwrite, echo=False)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def last_state(folder: Path) -> dict[str, Any]:
    """The newest checkpoint."""
    return load_checkpoint(list_checkpoints(folder)[0][1])


def same(first: Any, second: Any) -> bool:
    """Bit for bit, tensors inside included."""
    if isinstance(first, torch.Tensor):
        return first.dtype == second.dtype and torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(first == second)


def same_training(first: Path, second: Path) -> bool:
    """Whether two runs ended in the same state: weights, optimiser, learning state, metrics."""
    states = [last_state(folder) for folder in (first, second)]
    for state in states:
        state.pop("clock")
    return (
        same(weights(first), weights(second))
        and same(*states)
        and [numbers(line) for line in metrics(first)] == [numbers(line) for line in metrics(second)]
    )


def numbers(line: dict[str, Any]) -> dict[str, Any]:
    """A record of metrics.jsonl without what a clock said."""
    return {name: value for name, value in line.items() if "seconds" not in name}


def metrics(folder: Path) -> list[dict[str, Any]]:
    return read_metrics(folder / "metrics.jsonl")


def command(*arguments: str | Path, launcher: tuple[str, ...] = ()) -> list[str]:
    """The command line with the toy task, under another launcher if asked for."""
    return [sys.executable, *launcher, "-m", "tests.training.copying", *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    """For child processes: one thread, and no variables of launchers around us."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LATENTALIGN", "TORCHELASTIC"))
    }
    path = os.pathsep.join(map(str, (ROOT, ROOT / "src")))  # this checkout, whatever is installed
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **more}


def call(
    *arguments: str | Path, launcher: tuple[str, ...] = (), timeout: float = 1200
) -> subprocess.CompletedProcess:
    """Run the command line in another process."""
    return subprocess.run(
        command(*arguments, launcher=launcher),
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
