"""The learning rate of every update: warm-up times decay.

Both depend on nothing but the number of the update and the place in the data, so that a resumed run goes on with the
same rates.
"""

import math

from latentalign.training.recipe.sections import CosineDecay, InverseSqrtDecay, TrainingConfig


def share_of_rate(config: TrainingConfig, *, step: int, position: float, total: float) -> float:
    """The share of the rate that update number `step` (from 1) takes, at a position in epochs of `total`."""
    warmup = min(1.0, step / config.warmup_steps) if config.warmup_steps else 1.0
    match config.decay:
        case InverseSqrtDecay():
            return warmup * math.sqrt(config.warmup_steps / max(step, config.warmup_steps))
        case CosineDecay(floor=floor, epochs=epochs):
            fallen = 0.5 * (1.0 + math.cos(math.pi * min(position / (epochs or total), 1.0)))
            return warmup * (floor + (1.0 - floor) * fallen)
        case _:  # a plateau lowers the rate itself
            return warmup


def warnings_of(config: TrainingConfig, *, steps: float) -> list[str]:
    """Warnings about the rates of a training of `steps` updates, a line each."""
    if config.warmup_steps < steps:
        return []
    return [
        f"training.warmup_steps: {config.warmup_steps:,} is no less than all {steps:,.0f} updates of this training, "
        "so the full rate is never reached; make it smaller"
    ]
