"""Cells of a grid: a row's training as differences from a base recipe, and what two of them have in common."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from latentalign.errors import UserError
from latentalign.training.fork import past
from latentalign.training.recipes import Recipe, build_recipe, merge
from latentalign.training.runs import schedule_of
from latentalign.training.schedule import Schedule, name_of

Phase = dict[str, Any]  # an entry of a recipe's schedule
UNREACHED: Phase = {"objective": "wake"}  # gives a model an inference network that it never uses

# settings of `training` that change how a run is done, not what comes out of it
_MANNER = {
    "epochs", "inference", "checkpoint", "log_every", "threads", "accelerator", "devices", "nodes", "strategy",
    "timeout_minutes", "deterministic",
}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """How every row of a table is trained: a warm-up, a phase for q alone where there is one, then the objective."""

    warmup: tuple[Phase, ...]
    inference: tuple[Phase, ...]  # trains q before the bound moves θ
    epochs: float
    prune: float | None = None  # the base's, for every row that enumerates

    @classmethod
    def of(cls, recipe: Recipe) -> "Plan":
        """The plan that the base recipe's own schedule follows."""
        schedule = schedule_of(recipe)
        listed = [phase.model_dump(mode="json") for phase in recipe.schedule]
        built = list(zip(listed, schedule.phases, strict=False))
        warmup = [config for config, phase in built[:-1] if not phase.needs_posterior]
        inference = [config for config, phase in built[len(warmup) : -1] if phase.needs_posterior]
        if not warmup or not inference or len(warmup) + len(inference) != len(listed) - 1:
            raise UserError(
                "--recipe: expected a schedule of a warm-up (soft), a phase for the inference network (wake) and a "
                f"last phase, received {', '.join(name_of(phase['objective']) for phase in listed) or 'none'}; "
                "start from the packaged recipe reproduce-multi30k"
            )
        prune = getattr(schedule.phases[len(warmup)].objective, "prune", None)
        return cls(tuple(warmup), tuple(inference), schedule.total, prune)

    def schedule(self, spec: "Spec") -> list[Phase]:
        """The phases of a row."""
        warmup = [{**phase, **spec.warmup} for phase in self.warmup]
        inference = [{**phase, **spec.inference} for phase in self.inference] if spec.needs_posterior else []
        past_phases = [*warmup, *inference]
        begun = sum(phase["epochs"] for phase in past_phases)
        if begun >= self.epochs:
            raise UserError(
                f"training.epochs: expected more than the {begun:g} epochs before the last phase, "
                f"received {self.epochs:g}"
            )
        last: Phase = {"objective": _pruned(spec.last, self.prune), "epochs": self.epochs - begun}
        before = past_phases[-1]
        if before["objective"] == last["objective"] and before.get("train", "both") == "both":
            last["epochs"] += past_phases.pop()["epochs"]  # one long phase: nothing changes at the seam
        # every model has an inference network, so that all can share a warm-up
        return [*past_phases, last, *([] if spec.needs_posterior else [UNREACHED])]


def _pruned(objective: Any, prune: float | None) -> Any:
    """The objective with the plan's pruning wherever it has one."""
    if not isinstance(objective, Mapping) or prune is None:
        return objective
    return {key: prune if key == "prune" else _pruned(value, prune) for key, value in objective.items()}


@dataclass(frozen=True)
class Spec:
    """A row of a table before it has a seed: its names, and how it differs from the plan."""

    name: str
    objective: str  # as the table says it
    estimator: str
    last: Any  # the objective of the last phase, as a recipe has it
    needs_posterior: bool = False
    warmup: Mapping[str, Any] = field(default_factory=dict)  # changes to the warm-up's phases
    inference: Mapping[str, Any] = field(default_factory=dict)  # changes to q's phase
    model: Mapping[str, Any] = field(default_factory=dict)  # changes to `model:`
    labels: Mapping[str, Any] = field(default_factory=dict)  # more about the row: samples, baseline, …
    is_principal: bool = False  # trained with every seed, the others with the first


@dataclass(frozen=True)
class Cell:
    """A row with a seed: one training run."""

    spec: Spec
    seed: int
    recipe: Recipe
    changes: Mapping[str, Any]  # what the recipe has beyond the base

    @property
    def name(self) -> str:
        return f"{self.spec.name}-s{self.seed}"


@dataclass(frozen=True)
class Warmup:
    """The part that several cells begin with, trained once and forked."""

    name: str
    recipe: Recipe
    position: float  # epochs


def build_cells(
    base: Mapping[str, Any], specs: Iterable[Spec], seeds: Sequence[int], *, every_seed: bool = False
) -> list[Cell]:
    """All rows with their seeds, the first seed of all before the second of any."""
    recipe = build_recipe(base, place="--recipe")
    plan = Plan.of(recipe) if recipe.schedule else None
    specs = list(specs)
    cells = []
    for number, seed in enumerate(seeds):
        for spec in specs:
            if number == 0 or every_seed or spec.is_principal:
                changes = _changes(spec, plan)
                values = merge(merge(dict(base), changes), {"seed": seed})
                cells.append(Cell(spec, seed, build_recipe(values, place=f"row {spec.name}"), changes))
    return cells


def _changes(spec: Spec, plan: Plan | None) -> dict[str, Any]:
    """What a row's recipe has beyond the base; a base without a schedule trains every objective from the start."""
    changes: dict[str, Any] = {"objective": spec.last}
    if plan is not None:
        changes = {"schedule": plan.schedule(spec), "training": {"epochs": plan.epochs}}
    return {**changes, "model": dict(spec.model)} if spec.model else changes


def fingerprint(recipe: Recipe, *, until: float | None = None) -> str:
    """Equal for two recipes by which training comes to the same weights (until a position in epochs)."""
    values = recipe.resolved()
    schedule = schedule_of(recipe)
    data = dict(values["data"])
    if "folder" in data:
        data["folder"] = str(Path(data["folder"]).resolve())
    training = {key: value for key, value in values["training"].items() if key not in _MANNER}
    content = {
        **{key: values[key] for key in ("task", "seed", "model")},
        "data": data,
        "training": training,
        "past": past(schedule, schedule.total if until is None else until),
        "posterior": schedule.needs_posterior,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


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
    values["training"] = {**values["training"], "epochs": point}
    phases = [phase for phase in schedule.phases if phase.start < point - 1e-9]
    spelt = "-".join(f"{phase.name}{min(phase.end, point) - phase.start:g}" for phase in phases)
    name = f"warmup-{spelt}-{key[:4]}-s{recipe.seed}"
    return Warmup(name, build_recipe(values, place=name), point)
