"""Everything that can go wrong before training, found without training.

`check` and `train` take the same two steps: what the recipe alone says (`check_settings`), and a trial of the model on
the data (`try_out`). So what one refuses, the other refuses.
"""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from latentalign.alignment.errors import NonFiniteError
from latentalign.errors import UserError
from latentalign.training.loop.evaluation import (
    evaluate_model,
    find_predictor,
    natural_inference,
)
from latentalign.training.loop.lightning_trainer import check_machine, precision_of
from latentalign.training.loop.module import AlignmentModule
from latentalign.training.loop.randomness import derive_seed
from latentalign.training.loop.rate import warnings_of
from latentalign.training.loop.stream import Stream
from latentalign.training.recipe.recipes import Recipe
from latentalign.training.recipe.schedule import Schedule, schedule_of

_BYTES = 16  # of a parameter in training: itself, its gradient and Adam's two means, four each
_TRIED = 4  # examples of validation


def check_recipe(recipe: Recipe) -> list[str]:
    """Read the data, build the model and try the first batch with the objective of every phase; what was found."""
    schedule = check_settings(recipe)
    lines: list[str] = []
    with tempfile.TemporaryDirectory(prefix="latentalign-") as scratch:
        prepared = recipe.prepare(Path(scratch), lines.append)
        try:
            return [*lines, *try_out(recipe, schedule, prepared)]
        except NonFiniteError as error:
            raise UserError(f"the first batch: {error}") from None


def check_settings(recipe: Recipe) -> Schedule:
    """Refuse what cannot work whatever the data are; the schedule of the recipe."""
    schedule = schedule_of(recipe)
    if recipe.training.inference is not None:
        find_predictor(recipe.training.inference)
    check_machine(recipe.training)
    return schedule


def try_out(recipe: Recipe, schedule: Schedule, prepared: Any) -> list[str]:
    """Build the model, take the first batch through every phase, and validate on a few examples; nothing is kept."""
    _check_size(recipe, schedule, prepared)
    torch.manual_seed(derive_seed(recipe.seed, "model"))
    model = recipe.task.build_model(recipe.model, prepared.assets, needs_posterior=schedule.needs_posterior)
    stream = Stream(prepared.train, seed=recipe.seed, total=schedule.total, accumulate=1)
    _check_parameters(schedule, model)
    module = AlignmentModule(model, schedule, recipe.training, stream=stream, seed=recipe.seed)
    module.configure_optimizers()
    share = next(iter(stream)).shares[0]
    lines = []
    for phase in schedule.phases:
        module.enter(phase)
        try:
            with torch.no_grad(), precision_of(recipe.training):
                _, totals = module.measure(share, module.seed_step(0))
        except NonFiniteError:
            raise
        except ValueError as error:
            raise UserError(f"phase {phase.number + 1} ({phase.name}): {error}") from None
        loss = float(totals[0] / totals[-1])
        lines.append(
            f"phase {phase.number + 1}: {phase.name}, loss of the first batch {loss:.3f} before training"
        )
    _try_validation(recipe, schedule, model, prepared.valid)
    steps = Stream(
        prepared.train, seed=recipe.seed, total=schedule.total, accumulate=recipe.training.accumulate
    )
    an_epoch = len(steps.steps_of(0))
    lines.append(
        f"{len(prepared.train):,} examples in {an_epoch:,} steps an epoch, "
        f"{schedule.total:g} epochs; {len(prepared.valid):,} examples to validate"
    )
    lines += warnings_of(recipe.training, steps=an_epoch * schedule.total)
    theta = sum(parameter.numel() for parameter in model.theta())
    phi = sum(parameter.numel() for parameter in model.phi())
    return [*lines, f"parameters: theta {theta:,}, phi {phi:,}"]


def _check_parameters(schedule: Schedule, model: Any) -> None:
    """Refuse a phase that has nothing to train, such as an inference network where the posterior is given."""
    for phase in schedule.phases:
        if phase.trains_phi and not phase.trains_theta and not any(True for _ in model.phi()):
            raise UserError(
                f"schedule.{phase.number}.train: 'phi' trains an inference network, but this model has none: its "
                "posterior is given, not learnt (see model); leave the phase out, or train theta"
            )


@dataclass(frozen=True)
class _Few:
    """The first examples of a dataset, to see whether they can be measured at all."""

    dataset: Any

    def plan(self, epoch: int, seed: int) -> list[list[int]]:
        return [self.dataset.plan(epoch, seed)[0][:_TRIED]]

    def collate(self, indices: list[int]) -> Any:
        return self.dataset.collate(indices)


def _try_validation(recipe: Recipe, schedule: Schedule, model: Any, valid: Any) -> None:
    """Refuse an inference that does not fit the model now rather than after the first epoch."""
    chosen = recipe.training.inference or natural_inference(schedule, model.example_prior())
    few: Any = _Few(valid)
    try:
        evaluate_model(model, few, chosen, with_posterior=schedule.needs_posterior)
    except UserError as error:
        raise UserError(f"training.inference: {error}") from None


def _check_size(recipe: Recipe, schedule: Schedule, prepared: Any) -> None:
    """Refuse a model that this machine cannot train, without building it."""
    with torch.device("meta"):
        model = recipe.task.build_model(
            recipe.model, prepared.assets, needs_posterior=schedule.needs_posterior
        )
    count = sum(parameter.numel() for part in (model.theta(), model.phi()) for parameter in part)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if count * _BYTES > memory:
        raise UserError(
            f"model: {count:,} parameters take {count * _BYTES / 2**30:,.0f} GB to train, this machine has "
            f"{memory / 2**30:,.0f} GB; make its sizes smaller"
        )
