"""Training as a picture: what validation measured, over epochs or updates."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from latentalign.errors import UserError
from latentalign.training.run.journal import read_metrics

Runs = Mapping[str, Sequence[Mapping[str, Any]]]  # name -> records of metrics.jsonl
# one panel a group; of each group what the run has measured is drawn
_PANELS = (
    ("perplexity", ("ppl",)),
    ("nats per output", ("nll", "negative elbo")),
    ("KL[q‖p], nats", ("kl",)),
    ("prior entropy, nats", ("prior_entropy",)),
    ("accuracy", ("accuracy", "attention_accuracy", "score")),
    ("learning rate", ("learning_rate",)),
)


def curves_of_run(folder: str | Path) -> Figure:
    """The curves of a run folder's metrics.jsonl."""
    path = Path(folder) / "metrics.jsonl"
    if not path.is_file():
        raise UserError(
            f"{folder}: no metrics.jsonl; expected the folder of a run that has validated at least once"
        )
    records = [record for record in read_metrics(path) if "epoch" in record]
    if not records:
        raise UserError(f"{path}: no validation in it yet; wait for the first one")
    return training_curves({Path(folder).name: records})


def training_curves(runs: Runs) -> Figure:
    """Curves of one or several runs (name -> records of metrics.jsonl), one panel a measure."""
    drawn = [(title, names) for title, names in _PANELS if any(_series(runs, name) for name in names)]
    columns = min(3, len(drawn))
    rows = -(-len(drawn) // columns)
    figure = Figure(figsize=(3.6 * columns + 0.4, 2.6 * rows + 0.3), dpi=150, layout="constrained")
    for number, (title, names) in enumerate(drawn):
        axes = figure.add_subplot(rows, columns, number + 1)
        for name in names:
            for run, (epochs, values) in _series(runs, name).items():
                label = (
                    run if len(names) == 1 else name.replace("_", " ") if len(runs) == 1 else f"{run}, {name}"
                )
                axes.plot(epochs, values, marker="o", markersize=2.5, linewidth=1.2, label=label)
        _finish(axes, title, runs)
    return figure


def bound_curves(runs: Runs) -> Figure:
    """NLL (solid) and negative bound (dashed) of several runs over updates, a colour a run."""
    figure = Figure(figsize=(7.2, 5.2), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for name, style in (("nll", "-"), ("negative elbo", "--")):
        for run, (steps, values) in _series(runs, name, over="step").items():
            colour = colormaps["tab20"](list(runs).index(run) % 20)
            label = run if name == "nll" else None
            axes.plot(
                steps, values, style, color=colour, linewidth=1.1, marker=".", markersize=3, label=label
            )
    _style(axes, "validation, nats per output: NLL (solid) and negative bound (dashed)", over="updates")
    figure.legend(fontsize=7, frameon=False, loc="outside lower center", ncols=3)
    return figure


def _style(axes: Axes, title: str, *, over: str) -> None:
    axes.set_title(title, fontsize=9, loc="left")
    axes.set_xlabel(over, fontsize=8)
    axes.tick_params(labelsize=8)
    axes.grid(color="0.92")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _finish(axes: Axes, title: str, runs: Runs) -> None:
    _style(axes, title, over="epoch")
    if len(axes.lines) > 1:
        axes.legend(fontsize=7, frameon=False)
    if len(runs) == 1:
        for epoch in _phase_starts(next(iter(runs.values()))):
            axes.axvline(epoch, color="0.7", linewidth=0.8, linestyle=":")


def _series(runs: Runs, name: str, *, over: str = "epoch") -> dict[str, tuple[list[float], list[float]]]:
    found = {}
    for run, records in runs.items():
        points = [
            (float(record[over]), value) for record in records if (value := _value(record, name)) is not None
        ]
        if points:
            found[run] = ([place for place, _ in points], [value for _, value in points])
    return found


def _value(record: Mapping[str, Any], name: str) -> float | None:
    if name == "negative elbo":
        return -record["elbo"] if "elbo" in record else None
    value = record.get(name)
    return float(value) if isinstance(value, int | float) else None


def _phase_starts(records: Sequence[Mapping[str, Any]]) -> list[float]:
    """Epochs of the last validation before another objective took over."""
    return [one["epoch"] for one, other in pairwise(records) if one.get("phase") != other.get("phase")]
