"""What a row of the VQA columns of the paper's first table says of a trained run, and the paper's own figures."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentalign import __version__

RECIPE = "vqa-scenes"
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
