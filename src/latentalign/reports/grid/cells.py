"""Cells of a grid: a row of a table with a seed, which is one training run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from latentalign.reports.grid.phase_plan import PhasePlan, RowSpec
from latentalign.training.recipe.overrides import merge
from latentalign.training.recipe.recipes import Recipe, build_recipe


@dataclass(frozen=True)
class Cell:
    """A row with a seed: one training run."""

    spec: RowSpec
    seed: int
    recipe: Recipe
    changes: Mapping[str, Any]  # what the recipe has beyond the base

    @property
    def name(self) -> str:
        return f"{self.spec.name}-s{self.seed}"


def build_cells(
    base: Mapping[str, Any], specs: Iterable[RowSpec], seeds: Sequence[int], *, every_seed: bool = False
) -> list[Cell]:
    """All rows with their seeds, the first seed of all before the second of any."""
    recipe = build_recipe(base, place="--recipe")
    plan = PhasePlan.of(recipe) if recipe.schedule else None
    specs = list(specs)
    cells = []
    for number, seed in enumerate(seeds):
        for spec in specs:
            if number == 0 or every_seed or spec.is_principal:
                changes = _changes(spec, plan)
                values = merge(merge(dict(base), changes), {"seed": seed})
                cells.append(Cell(spec, seed, build_recipe(values, place=f"row {spec.name}"), changes))
    return cells


def _changes(spec: RowSpec, plan: PhasePlan | None) -> dict[str, Any]:
    """What a row's recipe has beyond the base.

    A base without a schedule trains every objective from the start, unless the row has phases of its own before it.
    """
    if plan is not None:
        changes = {"schedule": plan.schedule(spec), "training": {"epochs": plan.epochs}}
    elif spec.before:
        changes = {"schedule": [*spec.before, {"objective": spec.last}]}
    else:
        changes = {"objective": spec.last}
    return {**changes, "model": dict(spec.model)} if spec.model else changes
