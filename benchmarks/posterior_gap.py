"""How far posteriors are from the exact one, in nats an output: the prior, the inference network, and shortlists.

python -m benchmarks.posterior_gap RUN [--batches 8] [--out FILE.json]

RUN has an inference network. `training` is over training pairs with dropout, as the bound meets them; `validation` is
without dropout. Processor seconds of a batch are those of finding q, from prior and likelihood to its probabilities.
`steps` is what whole training steps cost from there on, over those of soft attention, on the same batches in turns.
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from latentalign.alignment.learning.objectives import Elbo, StochasticEM
from latentalign.alignment.metrics import exact_posterior, log_marginal
from latentalign.alignment.registry import build_objective
from latentalign.files import write_atomic
from latentalign.reports.grid.step_cost import BareLoop, prepare_again, spread_batches
from latentalign.training.loop.allocator import keep_freed_memory
from latentalign.training.run.environment import git_revision
from latentalign.training.trained_run import load

SHORTLISTS = (16, 32, 64, 128, 256)
SAMPLED = {"name": "reinforce", "samples": 1, "baseline": "soft"}
OBJECTIVES: dict[str, Any] = {
    "soft": "soft",
    "variational, one sample": {"name": "variational", "estimator": SAMPLED},
    "em, one sample": "em",
    "marginal, pruned at 0.005": {"name": "marginal", "prune": 0.005},
}


def ways(problem: Any) -> dict[str, Callable[[], Any]]:
    """Ways to find q for a problem that has the inference network's."""

    def shortlist(size: int) -> Any:
        return StochasticEM(shortlist=size).posterior(replace(problem, posterior=None))

    return {
        "prior": lambda: problem.prior,
        "inference network": lambda: problem.posterior,
        **{f"shortlist of {size}": lambda size=size: shortlist(size) for size in SHORTLISTS},
        "exact": lambda: exact_posterior(problem.prior, problem.likelihood),
    }


@torch.no_grad()
def measure(model: Any, batches: list[Any]) -> dict[str, dict[str, float]]:
    """The gap of the bound by every q, and what finding it took."""
    gaps: dict[str, float] = defaultdict(float)
    seconds: dict[str, float] = defaultdict(float)
    outputs = 0.0
    for batch in batches:
        problem = model.problem(batch, with_posterior=True)
        weights = problem.weights.double()
        exact = log_marginal(problem.prior, problem.likelihood)
        outputs += float(weights.sum())
        for name, find in ways(problem).items():
            started = time.process_time()
            q = find()
            seconds[name] += time.process_time() - started
            bound = Elbo()(replace(problem, posterior=q)).value
            gaps[name] += float(((exact - bound) * weights).sum())
    return {
        name: {
            "nats": round(gap / outputs, 4),
            "processor_seconds_a_batch": round(seconds[name] / len(batches), 4),
        }
        for name, gap in gaps.items()
    }


def step_costs(folder: Path, batches: list[Any]) -> dict[str, float]:
    """Processor time of training steps that begin at this run, over that of soft attention's."""
    loops = {
        name: BareLoop(load(folder, device="cpu").model, build_objective(objective), learning_rate=1e-4)
        for name, objective in OBJECTIVES.items()
    }
    seconds = dict.fromkeys(loops, 0.0)
    for number, batch in enumerate(batches):
        for name, loop in loops.items():
            started = time.process_time()
            loop.step(batch)
            if number > 0:  # the first one also pays for what torch sets up once
                seconds[name] += time.process_time() - started
    return {name: round(spent / seconds["soft"], 2) for name, spent in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)  # dropout
    keep_freed_memory()
    run = load(options.run, device="cpu")
    with prepare_again(run.config, options.run, lambda text: None) as prepared:
        training, validation = (
            spread_batches(part, options.batches) for part in (prepared.train, prepared.valid)
        )
    found: dict[str, Any] = {"revision": git_revision(), "run": options.run.name}
    found["training"] = measure(run.model.train(), training)
    found["validation"] = measure(run.model.eval(), validation)
    found["steps"] = step_costs(options.run, training)
    text = json.dumps(found, indent=1)
    if options.out is not None:
        write_atomic(options.out, text + "\n")
    print(text)


if __name__ == "__main__":
    main()
