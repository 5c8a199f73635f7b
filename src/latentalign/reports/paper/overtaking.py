"""When a row's likelihood, and its bound, fall below the marginal's: validation over updates."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from latentalign.training.run.journal import read_metrics

Point = Mapping[str, Any]
REFERENCE = "marginal"


def history_of(folder: Path) -> list[dict[str, Any]]:
    """What validation found over updates: NLL, and the bound where there was one."""
    points = []
    for record in read_metrics(folder / "metrics.jsonl"):
        point = {key: record[key] for key in ("step", "epoch", "phase")} | {"nll": round(record["nll"], 5)}
        points.append(point | ({"elbo": round(record["elbo"], 5)} if "elbo" in record else {}))
    return points


def overtakings(history: Sequence[Point]) -> list[dict[str, Any]]:
    """For every run with a bound: from which update on it is below the marginal's NLL of the same seed, if ever."""
    found = []
    for (row, seed), points in runs_in(history).items():
        reference = runs_in(history).get((REFERENCE, seed))
        bounded = [point for point in points if "elbo" in point]
        if reference is None or not bounded:
            continue
        found.append(
            {
                "row": row,
                "seed": seed,
                "likelihood": _below(bounded, reference, lambda point: float(point["nll"])),
                "bound": _below(bounded, reference, lambda point: -float(point["elbo"])),
                "gap": round(-bounded[-1]["nll"] - bounded[-1]["elbo"], 5),
                "last": bounded[-1]["step"],
            }
        )
    return found


def runs_in(history: Sequence[Point]) -> dict[tuple[str, int], list[Point]]:
    """The points of every row and seed, in the order of training."""
    runs: dict[tuple[str, int], list[Point]] = {}
    for point in history:
        runs.setdefault((point["row"], point["seed"]), []).append(point)
    return {name: sorted(points, key=lambda point: int(point["step"])) for name, points in runs.items()}


def _below(
    points: Sequence[Point], reference: Sequence[Point], value: Callable[[Point], float]
) -> int | None:
    """The first update from which on the value stays below the reference's NLL; none if it is not below at the end."""
    since: int | None = None
    for point in reversed(points):
        # a reference that stopped earlier is compared by its last validation
        known = [other for other in reference if other["step"] <= point["step"]]
        if not known or value(point) >= known[-1]["nll"]:
            break
        since = int(point["step"])
    return since
