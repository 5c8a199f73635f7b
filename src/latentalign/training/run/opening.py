"""Opening a run: the first process makes or checks the folder and tells the others what it found."""

import errno
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentalign.errors import UserError
from latentalign.training.recipe.recipes import Recipe
from latentalign.training.recipe.schedule import schedule_of
from latentalign.training.recipe.sections import TrainingConfig
from latentalign.training.run.checkpoints import newest_good, set_aside_after
from latentalign.training.run.config_file import load_config, save_config
from latentalign.training.run.environment import note_environment
from latentalign.training.run.folders import begin, prepare_again
from latentalign.training.run.journal import RunLog
from latentalign.training.run.lock import hold
from latentalign.training.run.marker import read_marker, verify_data, verify_parts
from latentalign.training.run.processes import World, agree
from latentalign.training.run.stopping import TrainingStopped

# what the system says when a disk is full or a folder may not be written
DISK_ERRORS = {errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EIO}


@dataclass(frozen=True)
class Opened:
    """A run that can be trained: its data, and where to go on from."""

    prepared: Any
    checkpoint: Path | None = None
    is_complete: bool = False


def open_run(
    recipe: Recipe,
    folder: Path,
    *,
    resume: bool,
    overwrite: bool,
    trial: Callable[[Any], None],
    world: World,
    log: RunLog,
    stack: ExitStack,
) -> Opened:
    """Make the run folder, or find the checkpoint to go on from. The stack keeps what has to outlive this call.

    The trial is made with the prepared data; what it refuses leaves everything as it was.
    """
    opening = _Opening(recipe, folder, trial, world, log, stack)
    opened: Opened | None = None
    problem: UserError | None = None
    if world.is_first:
        try:
            exists = resume and folder.is_dir() and any(folder.iterdir())
            opened = opening.resume() if exists else opening.begin(overwrite=overwrite)
        except UserError as error:
            problem = error
        except OSError as error:
            if error.errno not in DISK_ERRORS:
                raise
            problem = UserError(f"{error.filename or folder}: cannot be written ({error.strerror})")
    said = agree(_message(opened, problem))
    if problem is not None:
        raise problem
    if said["problem"] is not None:
        stopped = TrainingStopped(said["problem"])
        stopped.is_reported = True
        raise stopped
    return opened or opening.join(said)


def _message(opened: Opened | None, problem: UserError | None) -> dict[str, Any]:
    """What the first process tells the others."""
    checkpoint = opened.checkpoint if opened else None
    return {
        "checkpoint": str(checkpoint) if checkpoint else None,
        "is_complete": bool(opened and opened.is_complete),
        "problem": str(problem) if problem else None,
    }


@dataclass(frozen=True)
class _Opening:
    """The three ways to open a run; fields as the arguments of `open_run`."""

    recipe: Recipe
    folder: Path
    trial: Callable[[Any], None]
    world: World
    log: RunLog
    stack: ExitStack

    def begin(self, *, overwrite: bool) -> Opened:
        """A new run."""
        prepared = begin(
            self.recipe,
            self.folder,
            overwrite=overwrite,
            trial=self.trial,
            log=self.log,
            world_size=self.world.size,
            stack=self.stack,
        )
        self.log.open(self.folder / "log.txt")
        return Opened(prepared)

    def join(self, said: dict[str, Any]) -> Opened:
        """The run that the first process has opened, for the others."""
        if not self.folder.is_dir():
            raise UserError(
                f"{self.folder}: process {self.world.rank} does not see the run folder; all machines must share it"
            )
        checkpoint = Path(said["checkpoint"]) if said["checkpoint"] else None
        return Opened(self._prepare_again(), checkpoint, said["is_complete"])

    def resume(self) -> Opened:
        """A run that was begun before."""
        recipe, folder, log = self.recipe, self.folder, self.log
        before = load_config(
            folder
        )  # a folder that is not a run is refused before anything is written into it
        marker = read_marker(folder)
        if marker is not None:
            verify_parts(folder, marker, recipe.resolved())
        self.stack.enter_context(hold(folder))
        log.open(folder / "log.txt")
        good = newest_good(folder, log)
        set_aside_after(folder, good[0] if good else None)
        prepared = self._prepare_again()
        if good is not None and good[1]["examples"] != len(prepared.train):
            raise UserError(
                f"{folder}: the run began with {good[1]['examples']} training examples, now there are "
                f"{len(prepared.train)}; it cannot be resumed with other data"
            )
        if marker is not None:
            verify_data(folder, marker, prepared)
        self.trial(prepared)
        if differences := note_environment(recipe, folder, self.world.size):
            log(f"conditions differ from the run's beginning ({', '.join(differences)}): results may differ")
        if before.resolved() != recipe.resolved():
            save_config(recipe, folder)
        if good is None:
            log(f"{folder}: no good checkpoint yet; training starts at the beginning")
            return Opened(prepared)
        path, content = good
        place = content["place"]
        log(f"resumed from {path.name}: epoch {place['position']:.2f}, step {place['step']}")
        return Opened(prepared, path, _is_complete(content, schedule_of(recipe).total, recipe.training))

    def _prepare_again(self) -> Any:
        return self.stack.enter_context(prepare_again(self.recipe, self.folder, self.log))


def _is_complete(content: dict[str, Any], total: float, config: TrainingConfig) -> bool:
    patience = config.early_stopping.patience
    stopped = content["learning"]["stopped"] and patience is not None
    waited_enough = stopped and content["learning"]["waiting_to_stop"] >= patience
    return bool(content["place"]["position"] >= total - 1e-9 or waited_enough)
