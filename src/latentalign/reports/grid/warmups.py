"""Warm-ups: the part of training that several cells have in common, done once and forked."""

from collections.abc import Sequence
from dataclasses import dataclass

from latentalign.reports.grid.cells import Cell
from latentalign.reports.grid.fingerprint import fingerprint
from latentalign.training.recipe.recipes import Recipe, build_recipe
from latentalign.training.recipe.schedule import Schedule, schedule_of


@dataclass(frozen=True)
class Warmup:
    """The part that several cells begin with, trained once and forked."""

    name: str
    recipe: Recipe
    position: float  # epochs


def shared_warmups(cells: Sequence[Cell]) -> dict[str, list[Warmup]]:
    """For every cell (by name) the warm-ups on its way, earliest first; each serves at least two cells.

    Two cells that differ only after a point in training share everything before it. Points are the ends of phases;
    where the same cells go on together, only the latest point counts.
    """
    schedules = {cell.name: schedule_of(cell.recipe) for cell in cells}
    points = sorted(
        {phase.end for plan in schedules.values() for phase in plan.phases if phase.end < plan.total - 1e-9}
    )
    together: dict[str, list[str]] = {}  # fingerprint until a point -> cells
    found: list[tuple[float, str]] = []
    for point in points:
        for cell in cells:
            if point < schedules[cell.name].total - 1e-9:
                key = fingerprint(cell.recipe, until=point)
                if key not in together:
                    together[key] = []
                    found.append((point, key))
                together[key].append(cell.name)
    by_name = {cell.name: cell for cell in cells}
    result: dict[str, list[Warmup]] = {cell.name: [] for cell in cells}
    for number, (point, key) in enumerate(found):
        group = together[key]
        is_last = all(together[later] != group for _, later in found[number + 1 :])
        if len(group) > 1 and is_last:
            warmup = _warmup(by_name[group[0]].recipe, schedules[group[0]], point, key)
            for name in group:
                result[name].append(warmup)
    return result


def _warmup(recipe: Recipe, schedule: Schedule, point: float, key: str) -> Warmup:
    values = recipe.resolved()
    # the rates are those of the whole: a warm-up must not fall to the floor at its own end
    training = recipe.training.with_fixed_decay(schedule.total)
    values["training"] = {**training.model_dump(mode="json"), "epochs": point}
    phases = [phase for phase in schedule.phases if phase.start < point - 1e-9]
    spelt = "-".join(f"{phase.name}{min(phase.end, point) - phase.start:g}" for phase in phases)
    name = f"warmup-{spelt}-{key[:4]}-s{recipe.seed}"
    return Warmup(name, build_recipe(values, place=name), point)
