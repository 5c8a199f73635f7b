"""The phases that a row of a table is trained by, as differences from the base recipe's own schedule."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from latentalign.errors import UserError
from latentalign.training.recipe.recipes import Recipe
from latentalign.training.recipe.schedule import name_of, schedule_of

Phase = dict[str, Any]  # an entry of a recipe's schedule
UNREACHED: Phase = {"objective": "wake"}  # gives a model an inference network that it never uses


@dataclass(frozen=True)
class PhasePlan:
    """How every row of a table is trained: a warm-up, a phase for q alone where there is one, then the objective."""

    warmup: tuple[Phase, ...]
    inference: tuple[Phase, ...]  # trains q before the bound moves θ
    epochs: float
    prune: float | None = None  # the base's, for every row that enumerates

    @classmethod
    def of(cls, recipe: Recipe) -> "PhasePlan":
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

    def schedule(self, spec: "RowSpec") -> list[Phase]:
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
class RowSpec:
    """A row of a table before it has a seed: its names, and how it differs from the plan."""

    name: str
    objective: str  # as the table says it
    estimator: str
    last: Any  # the objective of the last phase, as a recipe has it
    needs_posterior: bool = False
    warmup: Mapping[str, Any] = field(default_factory=dict)  # changes to the warm-up's phases
    inference: Mapping[str, Any] = field(default_factory=dict)  # changes to q's phase
    before: tuple[Phase, ...] = ()  # phases of its own before the last, where the base recipe has no schedule
    model: Mapping[str, Any] = field(default_factory=dict)  # changes to `model:`
    labels: Mapping[str, Any] = field(default_factory=dict)  # more about the row: samples, baseline, …
    is_principal: bool = False  # trained with every seed, the others with the first
