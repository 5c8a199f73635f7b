"""What an objective costs: speed and memory of a few training steps in a fresh process, the same for every run."""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from latentalign.alignment.learning.bound import Bound
from latentalign.errors import UserError
from latentalign.reports.grid.processes import ONE_THREAD, python
from latentalign.training.loop.allocator import keep_freed_memory
from latentalign.training.run.folders import prepare_again
from latentalign.training.trained_run import load

STEPS = 12


def cost_of_run(folder: Path) -> dict[str, Any]:
    """Outputs (target tokens) a second of processor time, and the largest memory of the process.

    A run's own clock depends on what else the machine did meanwhile; these figures can be compared.
    """
    command = python("-m", "latentalign.reports.grid.step_cost", str(folder))
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **ONE_THREAD}, check=False
    )
    if done.returncode != 0:
        raise UserError(f"{folder}: its cost cannot be measured; {done.stderr.strip().splitlines()[-1:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


class BareLoop:
    """Training steps as the trainer takes them, without the trainer: what costs time in them is the model's."""

    def __init__(
        self, model: Any, objective: Any, *, learning_rate: float, clip: float = 0.0, seed: int = 0
    ) -> None:
        self.model, self.objective, self.clip = model.train(), objective, clip
        self.parts = [list(part) for part in (model.theta(), model.phi())]  # each clipped by itself
        self.optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=True)
        self.generator = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)

    def step(self, batch: Any) -> tuple[float, Bound]:
        """Forward, backward, clip and update; the number of outputs and their bound."""
        needs_posterior = self.objective.needs_posterior
        problem = self.model.problem(batch, with_posterior=needs_posterior)
        bound = self.objective(problem, generator=self.generator)
        weights = problem.weights.to(bound.surrogate.dtype)
        outputs = weights.sum()
        (-(bound.surrogate * weights).sum() / outputs).backward()
        if self.clip > 0:
            for parameters in self.parts:
                torch.nn.utils.clip_grad_norm_(parameters, self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(outputs), bound


def take_steps(folder: Path, steps: int = STEPS) -> dict[str, Any]:
    """Train the last phase's objective for a few steps: time on batches of all lengths, memory on the longest, too."""
    run = load(folder)
    with prepare_again(run.config, folder, lambda text: None) as prepared:
        batches, longest = spread_batches(prepared.train, steps), longest_batch(prepared.train)
    training = run.config.training
    loop = BareLoop(
        run.model,
        run.schedule.last.objective,
        learning_rate=training.learning_rate,
        clip=training.gradient_clip,
    )
    outputs, seconds = 0.0, 0.0
    for number, batch in enumerate([batches[0], *batches]):
        started = time.process_time()
        count, _ = loop.step(batch)
        if number > 0:  # the first one also pays for what torch sets up once
            seconds += time.process_time() - started
            outputs += count
    loop.step(longest)
    return {"tokens_per_second": round(outputs / seconds, 1), "peak_memory_mb": round(peak_memory(), 1)}


def spread_batches(dataset: Any, count: int) -> list[Any]:
    """That many batches, from short to long, each the middle one of an equal part of an epoch."""
    plan = dataset.plan(-1, 0)
    chosen = [plan[int((n + 0.5) * len(plan) / count)] for n in range(count)]
    return [dataset.collate(indices) for indices in chosen]


def longest_batch(dataset: Any) -> Any:
    """The batch that needs the most memory."""
    return dataset.collate(dataset.plan(-1, 0)[-1])


def peak_memory() -> float:
    """The largest resident memory of this process so far, in MiB."""
    status = Path("/proc/self/status")
    if status.is_file():  # what getrusage says begins with the size of the process that started this one
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 2**10
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest / 2**20 if sys.platform == "darwin" else largest / 2**10


if __name__ == "__main__":
    torch.set_num_threads(1)
    keep_freed_memory()
    sys.stdout.write(json.dumps(take_steps(Path(sys.argv[1]))) + "\n")
