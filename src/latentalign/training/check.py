"""`check`: everything that can go wrong before training, found without training."""

import tempfile
from pathlib import Path

import torch

from latentalign.errors import UserError
from latentalign.training.loop.evaluation import find_predictor
from latentalign.training.loop.module import AlignmentModule
from latentalign.training.loop.randomness import derive_seed
from latentalign.training.loop.stream import Stream
from latentalign.training.recipe.recipes import Recipe
from latentalign.training.recipe.schedule import schedule_of
from latentalign.training.run.folders import prepare


def check_recipe(recipe: Recipe) -> list[str]:
    """Read the data, build the model and try the first batch with the objective of every phase; what was found."""
    schedule = schedule_of(recipe)
    if recipe.training.inference is not None:
        find_predictor(recipe.training.inference)
    lines: list[str] = []
    with tempfile.TemporaryDirectory(prefix="latentalign-") as scratch:
        prepared = prepare(recipe, Path(scratch), lines.append)
        torch.manual_seed(derive_seed(recipe.seed, "model"))
        model = recipe.task.build_model(
            recipe.model, prepared.assets, needs_posterior=schedule.needs_posterior
        )
        stream = Stream(
            prepared.train, seed=recipe.seed, total=schedule.total, accumulate=recipe.training.accumulate
        )
        module = AlignmentModule(model, schedule, recipe.training, stream=stream, seed=recipe.seed)
        step = next(iter(stream))
        for phase in schedule.phases:
            module.enter(phase)
            try:
                with torch.no_grad():
                    _, totals = module.measure(step.shares[0], module.seed_step(0))
            except ValueError as error:
                raise UserError(f"phase {phase.number + 1} ({phase.name}): {error}") from None
            loss = float(totals[0] / totals[-1])
            lines.append(
                f"phase {phase.number + 1}: {phase.name}, loss of the first batch {loss:.3f} before training"
            )
        lines.append(
            f"{len(prepared.train):,} examples in {len(stream.steps_of(0)):,} steps an epoch, "
            f"{schedule.total:g} epochs; {len(prepared.valid):,} examples to validate"
        )
        theta = sum(parameter.numel() for parameter in model.theta())
        phi = sum(parameter.numel() for parameter in model.phi())
        lines.append(f"parameters: theta {theta:,}, phi {phi:,}")
    return lines
