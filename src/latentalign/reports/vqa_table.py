"""The VQA half of the paper's first table, on generated scenes: which runs it takes and what a row says.

`cells()` lists recipe settings, `row()` turns a trained run into a row, `published()` gives the paper's figures.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentalign import __version__

RECIPE = "vqa-scenes"
SEEDS = (1, 2)
_SHARES = ("score", "prior_gold", "posterior_gold", "inference_gold")

# NLL, score and prior entropy on VQA 2.0
PUBLISHED = {
    ("soft", "-"): (1.76, 58.93, 2.70),
    ("marginal", "enumerate"): (1.69, 60.33, 2.66),
    ("hard", "enumerate"): (1.78, 57.60, 0.73),
    ("hard", "reinforce"): (1.82, 56.30, 0.58),
    ("variational", "enumerate"): (1.69, 58.44, 2.07),
    ("variational", "reinforce"): (1.75, 57.52, 2.44),
}


@dataclass(frozen=True)
class Cell:
    """One training run of the table."""

    objective: str
    estimator: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.objective}-{self.estimator.strip('-') or 'none'}-{self.seed}"

    @property
    def settings(self) -> list[str]:
        """Differences from the recipe, as `--set` takes them."""
        chosen = self.objective
        if self.objective in ("hard", "variational"):
            chosen = f"{{name: {self.objective}, estimator: {self.estimator}}}"
        return [f"objective={chosen}", f"seed={self.seed}"]

    @property
    def inference(self) -> str:
        """A soft model is tested as it is trained, every other one by enumeration, as in the paper."""
        return "soft" if self.objective == "soft" else "exact"


def cells(seeds: Sequence[int] = SEEDS) -> list[Cell]:
    """Every row but the relaxed one, which the paper does not have for VQA either."""
    return [Cell(objective, estimator, seed) for seed in seeds for objective, estimator in PUBLISHED]


def row(run: Any, cell: Cell, *, data: Path | None = None, minutes: float) -> dict[str, Any]:
    """What the table says of a trained run, measured on the test half."""
    from latentalign.training.evaluate import evaluate_run

    arguments = {"split": "test", **({"data": data} if data is not None else {})}
    found = evaluate_run(run, arguments, inference=cell.inference)
    return {
        "objective": cell.objective,
        "estimator": cell.estimator,
        "seed": cell.seed,
        "inference": cell.inference,
        "nll": round(found["nll"], 4),
        **{name: round(found[name], 2) for name in _SHARES if name in found},
        "score_official": round(found["score_official"], 2),
        "prior_entropy": round(found["prior_entropy"], 3),
        "by_type": {key[6:-1]: round(value, 2) for key, value in found.items() if key.startswith("score[")},
        "minutes": round(minutes, 2),
        "recipe": RECIPE,
        "settings": cell.settings,
        "version": __version__,
    }


def as_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Means over the seeds, with the paper's figures beside them."""
    seeds = sorted({found["seed"] for found in rows})
    lines = [
        f"Generated scenes, test half; mean over seeds {', '.join(map(str, seeds))} (largest difference from it).",
        "Gold: how often the likeliest region is one that shows the answer, in per cent, by the prior, by the exact",
        "posterior p(z | x, y) and by the inference network. On the right: the paper's figures for VQA 2.0.",
        "",
        "| objective | E | NLL | score | prior entropy | prior gold | posterior gold | network gold | minutes "
        "| paper: NLL | score | entropy |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (objective, estimator), paper in PUBLISHED.items():
        same = [found for found in rows if (found["objective"], found["estimator"]) == (objective, estimator)]
        if not same:
            continue
        shown = [
            _mean(same, "nll", 3),
            _mean(same, "score", 1),
            _mean(same, "prior_entropy", 2),
            *(_mean(same, name, 1) for name in _SHARES[1:]),
            _mean(same, "minutes", 1, spread=False),
            *(f"{value:.2f}" for value in paper),
        ]
        lines.append(f"| {objective} | {estimator} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


def _mean(rows: Sequence[Mapping[str, Any]], name: str, digits: int, *, spread: bool = True) -> str:
    values = [found[name] for found in rows if name in found]
    if not values:
        return "–"
    mean = sum(values) / len(values)
    if not spread or len(values) == 1:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} (±{max(abs(value - mean) for value in values):.{digits}f})"
