"""How noisy the gradients of estimators are in trained runs, against the exact gradient of the same batch.

python -m benchmarks.gradient_variance RUN [RUN …] [--batches 8] [--draws 30] [--out DIR]

Every RUN has an inference network. Batches of its own validation data are used, from short to long, dropout off.
Relative variance is E‖g − E g‖² / ‖exact‖² over draws of one step, for the model θ and for the inference network φ: the
mean over the batches. The gap of the bound is what it lacks to the log-likelihood, in nats an output.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from latentalign.alignment.learning.estimators import LeaveOneOut, NoBaseline, Reinforce, SoftBaseline
from latentalign.alignment.learning.objectives import Elbo, StochasticEM
from latentalign.files import write_atomic
from latentalign.reports.grid.step_cost import prepare_again, spread_batches
from latentalign.reports.paper.gradient_quality import Comparison, bound_tightness, gradient_quality
from latentalign.training.run.environment import git_revision
from latentalign.training.trained_run import load

COMPARED = [
    *(
        Comparison("variational", Elbo(), name, Elbo(estimator))
        for name, estimator in {
            "1 sample, no baseline": Reinforce(1, NoBaseline()),
            "1 sample, soft baseline": Reinforce(1, SoftBaseline()),
            "2 samples, leave one out": Reinforce(2, LeaveOneOut()),
            "5 samples, leave one out": Reinforce(5, LeaveOneOut()),
        }.items()
    ),
    # against the gradient of its own expectation: what the sample alone adds
    Comparison(
        "em", StochasticEM(10**6, Elbo().estimator), "1 sample", StochasticEM(10**6), parameters=("theta",)
    ),
]


def measure(model: Any, batches: list[Any], *, draws: int) -> dict[str, Any]:
    """Relative variances by estimator and group of parameters, means over the batches, and the gaps of bounds."""
    found = [gradient_quality(model, batch, repeats=draws, compared=COMPARED) for batch in batches]
    rows = [
        {
            **{key: same[0][key] for key in ("target", "estimator", "parameters")},
            "relative_variance": sum(row["relative_variance"] for row in same) / len(same),
        }
        for same in zip(*found, strict=True)
    ]
    return {"gradients": rows, "bounds": bound_tightness(model, batches)}


def measure_run(folder: Path, *, batches: int, draws: int) -> dict[str, Any]:
    """The same for a run, on its validation data."""
    run = load(folder, device="cpu")
    with prepare_again(run.config, folder, lambda text: None) as prepared:
        chosen = spread_batches(prepared.valid, batches)
    return {"run": folder.name, "epochs": run.schedule.total, **measure(run.model, chosen, draws=draws)}


NOTE = (
    "Means over batches of validation data. Where q is nearly certain the exact gradient of φ is close to 0, and its "
    "relative variance says nothing."
)


def table(found: dict[str, Any]) -> str:
    """A run's variances and the gap of its bound as Markdown."""
    (gap,) = (row["gap"] for row in found["bounds"] if row["bound"] == "variational")
    title = f"**{found['run']}, {found['epochs']:g} epochs**; gap of the bound: {gap:.4f} nats an output"
    lines = [title, "", "| estimator | θ: relative variance | φ: relative variance |", "| :-- | --: | --: |"]
    rows = {(row["target"], row["estimator"], row["parameters"]): row for row in found["gradients"]}
    for item in COMPARED:
        values = [
            f"{rows[item.target, item.estimator, group]['relative_variance']:.2g}"
            if group in item.parameters
            else "–"
            for group in ("theta", "phi")
        ]
        lines.append(f"| {item.target}, {item.estimator} | {' | '.join(values)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--draws", type=int, default=30)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = [measure_run(run, batches=options.batches, draws=options.draws) for run in options.runs]
    text = "\n\n".join(["# Variance of gradients", NOTE, *map(table, found)]) + "\n"
    if options.out is not None:
        content = {
            "revision": git_revision(),
            "batches": options.batches,
            "draws": options.draws,
            "runs": found,
        }
        write_atomic(options.out / "gradients.json", json.dumps(content, indent=1) + "\n")
        write_atomic(options.out / "gradients.md", text)
    print(text)


if __name__ == "__main__":
    main()
