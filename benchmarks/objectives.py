"""Time and memory of one forward and backward pass of each objective, relative to soft in the same run.

make bench-objectives            # or: python -m benchmarks.objectives --json bench-results/objectives.json
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.measure import measure, report
from latentalign.alignment import (
    Additive,
    AlignmentProblem,
    Categorical,
    ContextLikelihood,
    General,
    SoftmaxHead,
    build_objective,
)

BATCH, STEPS, FEATURES, VOCABULARY = 32, 25, 256, 10_000

REINFORCE = {"name": "reinforce", "samples": 1}
OBJECTIVES: dict[str, Any] = {
    "soft": "soft",
    "marginal": "marginal",
    "marginal, prune 0.01": {"name": "marginal", "prune": 0.01},
    "hard, enumerated": "hard",
    "hard, 1 sample": {"name": "hard", "estimator": REINFORCE},
    "variational, enumerated": "variational",
    "variational, prune 0.01": {"name": "variational", "estimator": {"name": "enumerate", "prune": 0.01}},
    "variational, 1 sample": {"name": "variational", "estimator": REINFORCE},
    "variational, gumbel": {"name": "variational", "estimator": "gumbel"},
    "wake": "wake",
    "rws, 5 samples": "rws",
    "vimco, 5 samples": "vimco",
    "svi, 10 steps": "svi",
    "em, one sample": "em",
    "semi-amortised": {"name": "svi", "start": "posterior"},
}


class Bench(nn.Module):
    """Attention with an MLP likelihood and a bilinear posterior over given states: where objectives differ."""

    def __init__(self) -> None:
        super().__init__()
        self.score = Additive(FEATURES, FEATURES, FEATURES)
        self.posterior = General(FEATURES, FEATURES)
        self.from_memory = nn.Linear(FEATURES, FEATURES)
        self.from_query = nn.Linear(FEATURES, FEATURES)
        self.output = nn.Linear(FEATURES, VOCABULARY)


def make(objective: Any, positions: int) -> Callable[[], None]:
    """A call of one forward and backward pass, with scores scaled so that alignments are as sharp as trained ones."""
    torch.manual_seed(0)
    chosen = build_objective(objective)
    bench = Bench()
    memory = torch.randn(BATCH, positions, FEATURES, requires_grad=True)
    queries = torch.randn(BATCH, STEPS, FEATURES, requires_grad=True)
    targets = torch.randint(VOCABULARY, (BATCH, STEPS))
    generator = torch.Generator().manual_seed(0)

    def run() -> None:
        prior = Categorical.from_scores(8 * bench.score(queries, memory))
        f = ContextLikelihood(
            SoftmaxHead(bench.output),
            bench.from_memory(memory),
            bench.from_query(queries),
            targets,
            width=VOCABULARY,
        )
        posterior = None
        if chosen.needs_posterior:
            posterior = Categorical.from_scores(0.5 * bench.posterior(queries, memory))
        bound = chosen(AlignmentProblem(prior, f, posterior=posterior), generator=generator)
        bench.zero_grad(set_to_none=True)
        memory.grad = queries.grad = None  # as in a model, where they are not leaves
        (-bound.surrogate.mean()).backward()

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--only", nargs="*", default=list(OBJECTIVES), choices=list(OBJECTIVES), help="some rows"
    )
    options = parser.parse_args()
    needed = {"soft", "marginal", "variational, 1 sample", *options.only}
    chosen = {name: objective for name, objective in OBJECTIVES.items() if name in needed}
    rows = []
    print(f"B={BATCH} T={STEPS} D={FEATURES} V={VOCABULARY}, {options.threads} threads")
    print(f"{'objective':26} {'S':>4} {'time / soft':>12} {'extra MiB':>10} {'/ soft':>7}")
    for positions in (25, 100):
        soft: dict[str, float] = {}
        for name, objective in chosen.items():
            result = measure(
                make, rounds=options.rounds, threads=options.threads, objective=objective, positions=positions
            )
            soft = soft or result
            row = {
                "objective": name,
                "S": positions,
                **result,
                "time_to_soft": result["seconds"] / soft["seconds"],
                "memory_to_soft": result["extra_mib"] / soft["extra_mib"],
            }
            rows.append(row)
            ratios = f"{row['time_to_soft']:12.2f} {row['extra_mib']:10.0f} {row['memory_to_soft']:7.2f}"
            print(f"{name:26} {positions:4d} {ratios}", flush=True)
    by = {(row["objective"], row["S"]): row for row in rows}
    goals = {
        "variational, 1 sample: time / soft (goal <= 2.2)": by["variational, 1 sample", 25]["time_to_soft"],
        "dense marginal: memory at S=100 / S=25 (goal <= 1.2)": by["marginal", 100]["extra_mib"]
        / by["marginal", 25]["extra_mib"],
    }
    for name, value in goals.items():
        print(f"{name}: {value:.2f}")
    report("objectives", {"rows": rows, "goals": goals, "threads": options.threads}, options.json)


if __name__ == "__main__":
    main()
