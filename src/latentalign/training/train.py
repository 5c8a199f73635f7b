"""Train a recipe into a run folder, or go on with one."""

import contextlib
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from latentalign.alignment.errors import NonFiniteError
from latentalign.training.check import check_settings, try_out
from latentalign.training.loop.after_step import AfterEachStep
from latentalign.training.loop.lightning_trainer import build_trainer, quiet, supported
from latentalign.training.loop.module import AlignmentModule
from latentalign.training.loop.progress_bar import Progress
from latentalign.training.loop.randomness import derive_seed
from latentalign.training.loop.rate import warnings_of
from latentalign.training.loop.signals import Signals
from latentalign.training.loop.stream import Stream
from latentalign.training.recipe.recipes import Recipe
from latentalign.training.recipe.schedule import Schedule, schedule_of
from latentalign.training.run.checkpoints import load_checkpoint
from latentalign.training.run.journal import RunLog
from latentalign.training.run.opening import DISK_ERRORS, Opened, open_run
from latentalign.training.run.processes import World, close_group, find_world, open_group
from latentalign.training.run.stopping import (
    NonFinite,
    TrainingStopped,
    disk_failure,
    is_lost_process,
    name_the_batch,
    process_failure,
    resume_command,
)
from latentalign.training.run.weights import MODEL


@dataclass(frozen=True)
class Trained:
    """How a run ended. `best` is the best value of what validation watches, normally the NLL."""

    folder: Path
    steps: int
    epochs: float
    best: float
    best_step: int
    seconds: float
    tokens: float
    is_first: bool = True  # whether this process speaks for the run

    def summary(self) -> dict[str, Any]:
        """For the user."""
        return {
            "run": str(self.folder),
            "steps": self.steps,
            "epochs": round(self.epochs, 4),
            "best": self.best,
            "best_step": self.best_step,
            "seconds": round(self.seconds, 2),
        }


def train(
    recipe: Recipe, folder: Path, *, resume: bool = False, overwrite: bool = False, echo: bool = True
) -> Trained:
    """Train the recipe into the folder. With `resume` go on from its newest good checkpoint, if there is one.

    `TrainingStopped` says that training ended early and can go on; other `UserError`s that it cannot begin.
    """
    schedule = check_settings(recipe)
    world = find_world(recipe.training.devices, recipe.training.nodes)
    if recipe.training.threads is not None:
        torch.set_num_threads(recipe.training.threads)
    log = RunLog(active=world.is_first, echo=echo)
    with ExitStack() as stack:
        stack.callback(close_group)
        if recipe.training.nodes > 1 and world.is_first:
            minutes = recipe.training.timeout_minutes
            log(
                f"waiting up to {minutes:g} minutes for {world.size} processes on {recipe.training.nodes} machines"
            )
        open_group(recipe.training.timeout_minutes)
        opened = open_run(
            recipe,
            folder,
            resume=resume,
            overwrite=overwrite,
            trial=lambda prepared: _try(recipe, prepared),
            world=world,
            log=log,
            stack=stack,
        )
        if opened.is_complete and opened.checkpoint is not None:
            log("training is complete; to go on, raise training.epochs (or early_stopping.patience)")
            return _finished_before(load_checkpoint(opened.checkpoint), folder, world)
        module = _build_module(recipe, schedule, opened, world, log)
        after_step = _build_after_step(recipe, folder, opened, world, log)
        _run(module, after_step, opened)
    return Trained(
        folder=folder,
        steps=module.step,
        epochs=module.position,
        best=after_step.validation.best,
        best_step=after_step.validation.best_step,
        seconds=after_step.seconds,
        tokens=after_step.tokens,
        is_first=world.is_first,
    )


def _try(recipe: Recipe, prepared: Any) -> None:
    """What `check` does, before anything is written. Training itself explains numbers that are not finite better."""
    with contextlib.suppress(NonFiniteError):
        try_out(recipe, schedule_of(recipe), prepared)


def _build_module(
    recipe: Recipe, schedule: Schedule, opened: Opened, world: World, log: RunLog
) -> AlignmentModule:
    """The model, freshly initialised from the seed, with the stream it learns from."""
    prepared = opened.prepared
    torch.manual_seed(derive_seed(recipe.seed, "model"))
    model = recipe.task.build_model(recipe.model, prepared.assets, needs_posterior=schedule.needs_posterior)
    theta = sum(parameter.numel() for parameter in model.theta())
    phi = sum(parameter.numel() for parameter in model.phi())
    log(f"parameters: theta {theta:,} (the model), phi {phi:,} (the inference network, unused at test time)")
    log(f"examples: {len(prepared.train):,} to train, {len(prepared.valid):,} to validate")
    if len(schedule.reached) < len(schedule.phases):
        log(f"training ends at epoch {schedule.total:g}, before the schedule's last phase begins")
    stream = Stream(
        prepared.train,
        seed=recipe.seed,
        total=schedule.total,
        accumulate=recipe.training.accumulate,
        rank=world.rank,
        world_size=world.size,
    )
    for warning in warnings_of(recipe.training, steps=len(stream.steps_of(0)) * schedule.total):
        log(warning)
    return AlignmentModule(model, schedule, recipe.training, stream=stream, seed=recipe.seed, world=world)


def _build_after_step(
    recipe: Recipe, folder: Path, opened: Opened, world: World, log: RunLog
) -> AfterEachStep:
    return AfterEachStep(
        folder,
        opened.prepared.valid,
        config=recipe.training,
        say=log,
        progress=Progress(log, active=world.is_first),
        signals=Signals(),
        resume_hint=resume_command(folder),
    )


def _run(module: AlignmentModule, after_step: AfterEachStep, opened: Opened) -> None:
    """Let lightning train; what goes wrong is reported in one line."""
    folder, world = after_step.folder, module.world
    deterministic_before = torch.are_deterministic_algorithms_enabled()
    after_step.signals.install()
    try:
        with quiet(), supported(module.training_config, after_step.say):
            trainer = build_trainer(module.training_config, folder, world=world, callbacks=[after_step])
            trainer.fit(
                module, train_dataloaders=module.stream, ckpt_path=opened.checkpoint, weights_only=True
            )
        state = after_step.validation
        after_step.say(
            f"done: {module.step} steps, best at step {state.best_step}, weights of step {state.kept_step}; "
            f"{folder / MODEL}"
        )
    except TrainingStopped as error:
        if isinstance(error, NonFinite):
            name_the_batch(error, opened.prepared.train, folder)
        error.is_reported = not world.is_first
        after_step.say.note(str(error))
        raise
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise
        raise disk_failure(error, folder) from None
    except RuntimeError as error:
        if world.size == 1 or not is_lost_process(error):
            raise
        raise process_failure(error, folder, step=module.step + 1) from None
    finally:
        after_step.progress.stop()
        after_step.signals.restore()
        torch.use_deterministic_algorithms(deterministic_before)


def _finished_before(content: dict[str, Any], folder: Path, world: World) -> Trained:
    place, learning, clock = content["place"], content["learning"], content["clock"]
    return Trained(
        folder=folder,
        steps=place["step"],
        epochs=place["position"],
        best=learning["best"],
        best_step=learning["best_step"],
        seconds=clock["seconds"],
        tokens=clock["tokens"],
        is_first=world.is_first,
    )
