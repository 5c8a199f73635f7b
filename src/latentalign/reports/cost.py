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

from latentalign.errors import UserError
from latentalign.reports.jobs import ONE_THREAD, python
from latentalign.training.folders import prepare_again
from latentalign.training.runs import load_run

STEPS = 12


def cost_of_run(folder: Path) -> dict[str, Any]:
    """Outputs (target tokens) a second of processor time, and the largest memory of the process.

    A run's own clock depends on what else the machine did meanwhile; these figures can be compared.
    """
    command = python("-m", "latentalign.reports.cost", str(folder))
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **ONE_THREAD}, check=False
    )
    if done.returncode != 0:
        raise UserError(f"{folder}: its cost cannot be measured; {done.stderr.strip().splitlines()[-1:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def take_steps(folder: Path, steps: int = STEPS) -> dict[str, Any]:
    """Train the last phase's objective for a few steps on batches of all lengths, the longest included."""
    run = load_run(folder)
    phase, model = run.schedule.last, run.model
    with prepare_again(run.config, folder, lambda text: None) as prepared:
        plan = prepared.train.plan(-1, 0)
        chosen = [plan[round(n * (len(plan) - 1) / max(steps - 1, 1))] for n in range(steps)]
        batches = [prepared.train.collate(indices) for indices in chosen]
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=run.config.training.learning_rate, fused=True)
    model.train()
    outputs, seconds = 0.0, 0.0
    for number, batch in enumerate([batches[0], *batches]):
        started = time.process_time()
        problem = model.problem(batch, with_posterior=phase.needs_posterior)
        bound = phase.objective(
            problem.prior, problem.likelihood, posterior=problem.posterior, generator=generator
        )
        weights = problem.weights.to(bound.surrogate.dtype)
        (-(bound.surrogate * weights).sum() / weights.sum()).backward()
        optimizer.step()
        optimizer.zero_grad()
        if number > 0:  # the first one also pays for what torch sets up once
            seconds += time.process_time() - started
            outputs += float(weights.sum())
    return {"tokens_per_second": round(outputs / seconds, 1), "peak_memory_mb": round(peak_memory(), 1)}


def peak_memory() -> float:
    """The largest resident memory of this process so far, in megabytes."""
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest / 2**20 if sys.platform == "darwin" else largest / 2**10


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.stdout.write(json.dumps(take_steps(Path(sys.argv[1]))) + "\n")
