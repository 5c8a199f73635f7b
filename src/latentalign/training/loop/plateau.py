"""What validation decides: which weights are kept, when the rate is lowered, and when to stop."""

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from latentalign.training.recipe.schedule import Phase, Schedule
from latentalign.training.recipe.sections import PlateauDecay, TrainingConfig


@dataclass(frozen=True)
class Verdict:
    """What follows from one validation."""

    is_best: bool
    is_kept: bool
    lowers_rate: bool = False
    stops: bool = False


@dataclass
class ValidationState:
    """The state that validation drives; every phase of the schedule starts afresh except for the rate.

    A phase that trains theta is judged by the NLL; one that trains the inference network alone by its bound, since the
    NLL does not move. Weights that are as good as the best replace it: they have seen more data. With
    `keep_weights: last` all finite ones replace those before.
    """

    rate: float
    first_rate: float = 0.0  # of the recipe, to see whether a resumed run was given another one
    phase: int = 0
    best: float = float("inf")
    best_step: int = 0
    kept_step: int = 0
    waiting_to_lower: int = 0
    waiting_to_stop: int = 0
    stopped: bool = False  # early

    def __post_init__(self) -> None:
        self.first_rate = self.first_rate or self.rate

    def judge(
        self, results: dict[str, Any], *, phase: Phase, schedule: Schedule, step: int, config: TrainingConfig
    ) -> Verdict:
        """Take the results of a validation into account."""
        if phase.number != self.phase:
            self.phase, self.best = phase.number, float("inf")
            self.waiting_to_lower = self.waiting_to_stop = 0
        value = monitored(results, phase)
        is_best, improved = value <= self.best, value < self.best
        if is_best:
            self.best, self.best_step = value, step
        is_kept = math.isfinite(value) if config.keep_weights == "last" else is_best
        if is_kept:
            self.kept_step = step
        self.waiting_to_lower = 0 if improved else self.waiting_to_lower + 1
        self.waiting_to_stop = 0 if improved else self.waiting_to_stop + 1
        halving, patience = config.halving, config.early_stopping.patience
        plateau = isinstance(config.decay, PlateauDecay) and halving.factor < 1.0
        lowers = plateau and self.waiting_to_lower > halving.patience
        if lowers:
            self.waiting_to_lower = 0
            self.rate = max(self.rate * halving.factor, halving.minimum)
        stops = patience is not None and phase is schedule.last and self.waiting_to_stop >= patience
        return Verdict(is_best, is_kept, lowers, stops)

    def state(self) -> dict[str, Any]:
        return asdict(self)

    def restore(self, state: dict[str, Any], config: TrainingConfig) -> None:
        """Go on from a checkpoint; a learning rate that was changed in the recipe since counts from now on."""
        for item in fields(self):  # earlier versions kept more
            setattr(self, item.name, state.get(item.name, getattr(self, item.name)))
        self.kept_step = state.get("kept_step", self.best_step)
        self.stopped = False
        if self.first_rate != config.learning_rate:
            self.rate = self.first_rate = config.learning_rate


def monitored(results: dict[str, Any], phase: Phase) -> float:
    """The number to be made small in this phase."""
    if not phase.trains_theta and "elbo" in results:
        return -float(results["elbo"])
    return float(results["nll"])
