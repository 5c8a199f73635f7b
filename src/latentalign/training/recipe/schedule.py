"""Phases of training: which objective drives which parameters, and until when."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from latentalign.alignment.registry import build_objective
from latentalign.errors import UserError
from latentalign.training.recipe.recipes import Recipe
from latentalign.training.recipe.sections import PhaseConfig

DEFAULT_EPOCHS = 10.0
MOST = 10_000  # samples or steps of an objective


@dataclass(frozen=True)
class Phase:
    """A stretch of training; `start` and `end` are in epochs."""

    number: int
    name: str
    objective: Any
    start: float
    end: float
    trains_theta: bool
    trains_phi: bool

    @property
    def needs_posterior(self) -> bool:
        return bool(self.objective.needs_posterior)

    def describe(self, total: float) -> str:
        """A line for the log of a training that ends at `total`."""
        trained = [name for name, yes in (("theta", self.trains_theta), ("phi", self.trains_phi)) if yes]
        trained = trained if self.needs_posterior else ["theta"]
        end = min(self.end, total)
        return f"phase {self.number + 1}: {self.name} until epoch {end:g}, trains {' and '.join(trained)}"


@dataclass(frozen=True)
class Schedule:
    """Phases one after another, and where training ends."""

    phases: tuple[Phase, ...]  # all of them, also those that training does not come to
    total: float  # epochs

    @property
    def needs_posterior(self) -> bool:
        """Whether any phase uses the inference network. One that is not reached counts: the model may go on later."""
        return any(phase.needs_posterior for phase in self.phases)

    @property
    def reached(self) -> list[Phase]:
        """Phases that begin before training ends."""
        return [phase for phase in self.phases if phase.start < self.total]

    @property
    def last(self) -> Phase:
        """The phase in which training ends."""
        return self.reached[-1]

    def at(self, position: float) -> Phase:
        """The phase at a position in epochs."""
        for phase in self.reached:
            if position < phase.end:
                return phase
        return self.last


def schedule_of(recipe: Recipe) -> Schedule:
    """The phases of a recipe."""
    return build_schedule(recipe.objective, recipe.schedule, recipe.training.epochs)


def build_schedule(
    objective: str | dict[str, Any], phases: Sequence[PhaseConfig] = (), epochs: float | None = None
) -> Schedule:
    """One phase with the recipe's objective, or the phases of its `schedule`.

    `epochs` is where training ends: the last phase goes on (or is cut) to that point. Without it training ends where
    the schedule does.
    """
    listed = list(phases) or [PhaseConfig(objective=objective)]
    if phases:  # the schedule takes the objective's place, but a mistyped one is still refused
        _build_phase(0, PhaseConfig(objective=objective), 0.0, math.inf, in_list=False)
    for number, phase in enumerate(listed[:-1]):
        if phase.epochs is None:
            raise UserError(f"schedule.{number}.epochs: missing; only the last phase may leave it out")
    if epochs is None:
        lengths = [phase.epochs for phase in listed]
        known = sum(length for length in lengths if length is not None)
        epochs = known if None not in lengths else max(DEFAULT_EPOCHS, known + 1.0)
    built, start = [], 0.0
    for number, config in enumerate(listed):
        last = number == len(listed) - 1
        end = math.inf if last else start + (config.epochs or 0.0)
        built.append(_build_phase(number, config, start, end, in_list=bool(phases)))
        start = end
    return Schedule(tuple(built), epochs)


def _build_phase(number: int, config: PhaseConfig, start: float, end: float, *, in_list: bool) -> Phase:
    place = f"schedule.{number}" if in_list else "objective"
    _check_counts(config.objective, place)
    try:
        objective = build_objective(config.objective)
    except ValueError as error:
        raise UserError(f"{place}: {error}") from None
    trains_phi = config.train in ("phi", "both")
    if config.train == "phi" and not objective.needs_posterior:
        raise UserError(
            f"{place}.train: 'phi' needs an objective with an inference network, received "
            f"{name_of(config.objective)!r}; try wake or variational"
        )
    return Phase(
        number=number,
        name=name_of(config.objective),
        objective=objective,
        start=start,
        end=end,
        trains_theta=config.train in ("theta", "both"),
        trains_phi=trains_phi,
    )


def _check_counts(choice: Any, place: str) -> None:
    """Refuse samples, steps and the like in such numbers that a step would never end."""
    if isinstance(choice, int) and choice > MOST:
        raise UserError(f"{place}: expected a whole number up to {MOST}, received {choice}")
    if isinstance(choice, dict):
        for key, value in choice.items():
            _check_counts(value, f"{place}.{key}")


def name_of(objective: str | dict[str, Any]) -> str:
    """A short name of an objective in a recipe, with its estimator if there is one."""
    if isinstance(objective, str):
        return objective
    estimator = objective.get("estimator")
    name = str(objective.get("name", "?"))
    return name if estimator is None else f"{name}-{name_of(estimator)}"
