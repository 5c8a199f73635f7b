"""The reliability diagram: how often printed links are right, against the probability they were printed with."""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure


def draw_reliability(results: dict[str, Any], path: Path) -> None:
    """One panel for text that was learnt from, one for text that was not."""
    largest = max(results["sizes"], key=int)
    panels = {
        "text seen in training": results["sizes"][largest]["own"]["calibration"],
        "text not seen in training": results["unseen"]["calibration"],
    }
    figure = Figure(figsize=(8, 4.4), layout="constrained")
    for axes, (name, found) in zip(figure.subplots(1, 2, sharey=True), panels.items(), strict=True):
        probs, right, links = (
            [item[key] for item in found["bins"]] for key in ("probability", "right", "links")
        )
        axes.plot([0, 1], [0, 1], color="0.6", linewidth=1, label="as sure as right")
        axes.plot(probs, right, color="tab:blue", linewidth=1)
        axes.scatter(
            probs, right, s=[8 + 150 * n / max(links) for n in links], color="tab:blue", label="printed links"
        )
        for x, y, n in zip(probs, right, links, strict=True):
            axes.annotate(
                str(n), (x, y), textcoords="offset points", xytext=(6, -12), fontsize=7, color="0.3"
            )
        axes.set(xlim=(0, 1.08), ylim=(0, 1.08), aspect="equal", xlabel="probability that is printed",
                 title=f"{name}: error {found['error']:.3f}")  # fmt: skip
        axes.legend(loc="upper left", frameon=False, fontsize=8)
    figure.axes[0].set_ylabel("share of these links that is right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
