"""Train a recipe into a run folder, or go on with one."""

import errno
import os
import shlex
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from latentalign.errors import UserError
from latentalign.training.checkpoints import list_checkpoints, newest_good
from latentalign.training.diagnosis import NonFinite
from latentalign.training.distributed import World, agree, close_group, find_world, open_group
from latentalign.training.engine import build_trainer, quiet
from latentalign.training.folders import begin, check_free, note_environment, prepare_again
from latentalign.training.journal import RunLog
from latentalign.training.module import AlignmentModule
from latentalign.training.progress import Progress
from latentalign.training.randomness import derive_seed
from latentalign.training.recipes import Recipe
from latentalign.training.runs import MODEL, load_config, schedule_of
from latentalign.training.schedule import Schedule
from latentalign.training.stopping import Signals, WorkerLost
from latentalign.training.stream import Stream
from latentalign.training.supervisor import Supervisor

_DISK = {errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EIO}


@dataclass(frozen=True)
class Trained:
    """How a run ended."""

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
    """Train the recipe into the folder. With `resume` go on from its newest good checkpoint, if there is one."""
    world = find_world(recipe.training.devices, recipe.training.nodes)
    schedule = schedule_of(recipe)
    _set_threads(recipe)
    log = RunLog(active=world.is_first, echo=echo)
    with ExitStack() as stack:
        stack.callback(close_group)
        open_group(recipe.training.timeout_minutes)
        checkpoint, prepared = _open_run(recipe, folder, resume, overwrite, world, log, stack)
        try:
            return _fit(recipe, schedule, folder, prepared, checkpoint, world, log)
        except OSError as error:
            if error.errno in _DISK:
                raise _disk_error(error, folder) from None
            raise


def _open_run(
    recipe: Recipe, folder: Path, resume: bool, overwrite: bool, world: World, log: RunLog, stack: ExitStack
) -> tuple[Path | None, Any]:
    """The checkpoint to go on from and the data. The first process makes the folder, the others wait for it."""
    prepared, checkpoint, problem = None, None, None
    if world.is_first:
        try:
            checkpoint, prepared = _open_first(recipe, folder, resume, overwrite, world, log, stack)
        except UserError as error:
            problem = error
        except OSError as error:
            if error.errno not in _DISK:
                raise
            problem = UserError(f"{folder}: cannot be written ({error.strerror}); choose another --out")
    answer = agree((str(checkpoint) if checkpoint else None, str(problem) if problem else None))
    if problem is not None:
        raise problem
    if answer[1] is not None:
        raise UserError(answer[1])
    if not world.is_first:
        prepared = stack.enter_context(prepare_again(recipe, folder, log))
    return (Path(answer[0]) if answer[0] else None), prepared


def _open_first(
    recipe: Recipe, folder: Path, resume: bool, overwrite: bool, world: World, log: RunLog, stack: ExitStack
) -> tuple[Path | None, Any]:
    exists = folder.is_dir() and any(folder.iterdir())
    if not (resume and exists):
        check_free(folder, overwrite=overwrite)
        prepared = begin(recipe, folder, log=log, world_size=world.size)
        log.open(folder / "log.txt")
        return None, prepared
    load_config(folder)  # a folder that is not a run is refused before anything is written into it
    log.open(folder / "log.txt")
    good = newest_good(folder, log)
    prepared = stack.enter_context(prepare_again(recipe, folder, log))
    differences = note_environment(recipe, folder, world.size)
    if differences:
        log(
            f"resumed under other conditions than it began ({', '.join(differences)}): weights may differ in rounding"
        )
    if good is None:
        log(f"{folder}: no good checkpoint yet; training starts at the beginning")
        return None, prepared
    path, content = good
    if content["examples"] != len(prepared.train):
        raise UserError(
            f"{folder}: the run began with {content['examples']} training examples, now there are "
            f"{len(prepared.train)}; it cannot be resumed with other data"
        )
    log(f"resumed from {path.name}, epoch {content['place']['epoch']}, step {content['place']['step']}")
    return path, prepared


def _fit(
    recipe: Recipe,
    schedule: Schedule,
    folder: Path,
    prepared: Any,
    checkpoint: Path | None,
    world: World,
    log: RunLog,
) -> Trained:
    config = recipe.training
    torch.manual_seed(derive_seed(recipe.seed, "model"))
    model = recipe.task.build_model(recipe.model, prepared.assets, needs_posterior=schedule.needs_posterior)
    module = AlignmentModule(model, schedule, config, seed=recipe.seed, world=world)
    _announce(model, schedule, prepared, log)
    signals = Signals()
    supervisor = Supervisor(
        folder,
        prepared.valid,
        config=config,
        log=log,
        progress=Progress(log, active=world.is_first),
        signals=signals,
        resume_hint=resume_command(folder),
    )
    stream = Stream(
        prepared.train,
        seed=recipe.seed,
        total=schedule.total,
        accumulate=config.accumulate,
        rank=world.rank,
        world_size=world.size,
    )
    module.stream = stream
    trainer = build_trainer(config, schedule, folder, world=world, callbacks=[supervisor])
    signals.install()
    try:
        with quiet():
            trainer.fit(module, train_dataloaders=stream, ckpt_path=checkpoint, weights_only=True)
    except NonFinite as error:
        raise _name_the_batch(error, prepared.train, folder, log) from None
    except RuntimeError as error:
        if world.size > 1 and _is_lost_worker(error):
            raise _worker_error(error, module, folder) from None
        raise
    finally:
        supervisor.progress.stop()
        signals.restore()
        torch.use_deterministic_algorithms(False)
    learning = supervisor.learning
    log(
        f"done: {module.step} steps, best validation at step {learning.best_step}; the model is {folder / MODEL}"
    )
    return Trained(
        folder=folder,
        steps=module.step,
        epochs=min(schedule.total, module.position),
        best=learning.best,
        best_step=learning.best_step,
        seconds=supervisor.seconds,
        tokens=supervisor.tokens,
        is_first=world.is_first,
    )


def _announce(model: Any, schedule: Schedule, prepared: Any, log: RunLog) -> None:
    theta = sum(parameter.numel() for parameter in model.theta())
    phi = sum(parameter.numel() for parameter in model.phi())
    log(f"parameters: theta {theta:,} (the model), phi {phi:,} (the inference network, unused at test time)")
    log(f"examples: {len(prepared.train):,} to train, {len(prepared.valid):,} to validate")
    cut = len(schedule.phases) - len(schedule.reached)
    if cut:
        log(
            f"training ends at epoch {schedule.total:g}, before the last {cut} of {len(schedule.phases)} phases"
        )


def _set_threads(recipe: Recipe) -> None:
    if recipe.training.threads is not None:
        torch.set_num_threads(recipe.training.threads)


def resume_command(folder: Path) -> str:
    """The command that goes on with a run."""
    return f"latentalign train --resume {shlex.quote(str(folder))}"


def _last_good(folder: Path) -> str:
    found = list_checkpoints(folder)
    return f"the last good checkpoint is {found[0][1].name}" if found else "there is no checkpoint yet"


def _disk_error(error: OSError, folder: Path) -> UserError:
    place = f"{error.filename}: " if error.filename else f"{folder}: "
    return UserError(
        f"{place}cannot be written ({os.strerror(error.errno or 0)}); {_last_good(folder)}; "
        f"make room, then go on with: {resume_command(folder)}"
    )


def _name_the_batch(error: NonFinite, train: Any, folder: Path, log: RunLog) -> NonFinite:
    where = train.describe([index for batch in error.examples for index in batch])
    text = f"{error}; batch: {where}; {_last_good(folder)}; try a smaller learning rate or gradient_clip"
    log(text)
    error.args = (text,)
    return error


def _is_lost_worker(error: RuntimeError) -> bool:
    text = str(error)
    signs = ("gloo", "Gloo", "NCCL", "Connection", "Socket", "Timed out", "ProcessGroup")
    return isinstance(error, torch.distributed.DistError) or any(sign in text for sign in signs)


def _worker_error(error: RuntimeError, module: AlignmentModule, folder: Path) -> WorkerLost:
    reason = str(error).splitlines()[0][:200]
    return WorkerLost(
        f"step {module.step + 1}: another process of the run was lost ({reason}); {_last_good(folder)}; "
        f"start the processes again with --resume {folder}"
    )
