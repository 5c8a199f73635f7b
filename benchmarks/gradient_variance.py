"""How noisy the gradients of estimators are in trained runs, against the exact gradient of the same batch.

python -m benchmarks.gradient_variance RUN [RUN …] [--outputs 400] [--draws 30] [--out FILE.json]

Every RUN has an inference network. A batch of its own validation data is used, dropout off. `relative variance` is
E‖g − E g‖² / ‖exact‖² over draws of one step, for the model θ and for the inference network φ. The gap of a bound is
what it lacks to the log-likelihood, in nats an output.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from latentalign.alignment.learning.estimators import LeaveOneOut, NoBaseline, Reinforce, SoftBaseline
from latentalign.alignment.learning.objectives import Elbo, StochasticEM
from latentalign.files import write_atomic
from latentalign.reports.grid.step_cost import prepare_again
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


def batch_of(dataset: Any, outputs: int) -> Any:
    """The first examples with about so many outputs together."""
    chosen: list[int] = []
    total = 0
    while total < outputs and len(chosen) < len(dataset):
        chosen.append(len(chosen))
        total += int(dataset.collate(chosen[-1:]).target_mask.sum())
    return dataset.collate(chosen)


def measure(folder: Path, *, outputs: int, draws: int) -> dict[str, Any]:
    """Variances and gaps of one run."""
    run = load(folder, device="cpu")
    with prepare_again(run.config, folder, lambda text: None) as prepared:
        batch = batch_of(prepared.valid, outputs)
    return {
        "run": folder.name,
        "epoch": run.schedule.total,
        "outputs": int(batch.target_mask.sum()),
        "gradients": gradient_quality(run.model, batch, repeats=draws, compared=COMPARED),
        "bounds": bound_tightness(run.model, [batch]),
    }


def table(found: dict[str, Any]) -> str:
    """A run's variances as Markdown."""
    lines = [f"**{found['run']}, {found['epoch']:g} epochs**", ""]
    lines += ["| estimator | θ: relative variance | φ: relative variance |", "| :-- | --: | --: |"]
    rows = {(row["target"], row["estimator"], row["parameters"]): row for row in found["gradients"]}
    for item in COMPARED:
        values = [
            f"{rows[item.target, item.estimator, group]['relative_variance']:.3g}"
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
    parser.add_argument("--outputs", type=int, default=400)
    parser.add_argument("--draws", type=int, default=30)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = [measure(run, outputs=options.outputs, draws=options.draws) for run in options.runs]
    if options.out is not None:
        write_atomic(options.out, json.dumps({"revision": git_revision(), "runs": found}, indent=1) + "\n")
    print("\n\n".join(table(one) for one in found))


if __name__ == "__main__":
    main()
