"""Perplexity against the number of positions at test time, as the right half of the paper's table 2."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

_COLOURS = ("#1b9e77", "#d95f02", "#7570b3", "#e7298a", "#66a61e", "#e6ab02")
_MARKERS = "osD^vP"


def k_curve(points: Mapping[str, Mapping[str, float]], *, references: Mapping[str, float]) -> Figure:
    """A line a model (row -> inference -> perplexity); dotted lines at the references (name -> perplexity)."""
    figure = Figure(figsize=(7.2, 4.6), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for number, (name, by_inference) in enumerate(points.items()):
        ks, values = _series(by_inference)
        label = "soft, tested with K-max" if name == "soft" else name
        axes.plot(
            ks,
            values,
            color=_COLOURS[number % len(_COLOURS)],
            marker=_MARKERS[number % len(_MARKERS)],
            markersize=4,
            linewidth=1.3,
            label=label,
        )
    for name, value in references.items():
        axes.axhline(value, color="0.35", linewidth=1.1, linestyle=":")
        axes.annotate(
            f" {name}",
            (1.0, value),
            xycoords=("axes fraction", "data"),
            annotation_clip=False,
            fontsize=7,
            color="0.25",
            va="center",
        )
    axes.set_xlabel("K, positions of largest prior", fontsize=9)
    axes.set_ylabel("test perplexity", fontsize=9)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.tick_params(labelsize=8)
    axes.grid(color="0.92")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.legend(fontsize=8, frameon=False, loc="outside lower center", ncols=3)
    return figure


def _series(by_inference: Mapping[str, float]) -> tuple[Sequence[int], Sequence[float]]:
    found = sorted(
        (int(name.removeprefix("kmax:")), value)
        for name, value in by_inference.items()
        if name.startswith("kmax:")
    )
    return [k for k, _ in found], [value for _, value in found]


def references_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The paper's two dotted lines: the soft model tested as it was trained, and variational with all positions."""
    wanted = {
        ("soft", "soft"): "soft attention",
        ("variational-sample", "exact"): "variational, all positions",
        ("variational-enumerate", "exact"): "variational, all positions",
    }
    found: dict[str, list[float]] = {}
    for (name, inference), label in wanted.items():
        values = [row["ppl"] for row in rows if (row["row"], row["inference"]) == (name, inference)]
        if values:
            found[label] = values  # the enumerated model's where there is one
    return {label: sum(values) / len(values) for label, values in found.items()}
