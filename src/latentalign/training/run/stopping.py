"""Ways a run ends before its time, each with an exit code of its own and a line that says how to go on."""

import os
import shlex
from pathlib import Path
from typing import Any

import torch

from latentalign.errors import UserError
from latentalign.training.run.checkpoints import list_checkpoints


class TrainingStopped(UserError):
    """Training ended early; the run folder can be resumed."""


class Interrupted(TrainingStopped):
    """SIGTERM or SIGINT came; a checkpoint was written."""

    code = 75


class ProcessLost(TrainingStopped):
    """Another process of the run went away."""

    code = 69


class NonFinite(TrainingStopped):
    """A loss or gradient that is NaN or infinite."""

    code = 70

    def __init__(self, number: int, examples: list[list[int]], cause: str) -> None:
        self.number = number  # of the step
        self.examples = examples
        self.cause = cause
        super().__init__(f"step {number}: {cause}")


# how torch's back ends speak when a peer goes away
_SIGNS = ("gloo", "NCCL", "Connection closed", "Connection reset", "Broken pipe", "Timed out", "ProcessGroup")


def resume_command(folder: Path) -> str:
    """The command that goes on with a run."""
    return f"latentalign train --resume {shlex.quote(str(folder))}"


def last_good(folder: Path) -> str:
    """Names the newest checkpoint."""
    found = list_checkpoints(folder)
    return f"the last good checkpoint is {found[0][1].name}" if found else "there is no checkpoint yet"


def disk_failure(error: OSError, folder: Path) -> UserError:
    """A full disk, or a folder that may not be written any more."""
    reason = os.strerror(error.errno or 0)
    return UserError(
        f"{error.filename or folder}: cannot be written ({reason}); {last_good(folder)}; "
        f"mend that, then go on with: {resume_command(folder)}"
    )


def name_the_batch(error: NonFinite, dataset: Any, folder: Path) -> None:
    """Complete the report of a loss that is not finite by where its batch comes from."""
    where = dataset.describe([index for batch in error.examples for index in batch])
    error.args = (
        f"{error}; batch: {where}; {last_good(folder)}; look at these examples, or try a smaller learning rate",
    )


def is_lost_process(error: RuntimeError) -> bool:
    """Whether an error of torch means that another process went away."""
    return isinstance(error, torch.distributed.DistError) or any(sign in str(error) for sign in _SIGNS)


def process_failure(error: RuntimeError, folder: Path, *, step: int) -> ProcessLost:
    """Another process of the run is gone."""
    reason = " ".join(str(error).split())[:160]
    return ProcessLost(
        f"step {step}: another process of the run was lost ({reason}); {last_good(folder)}; "
        f"start all processes again with --resume {shlex.quote(str(folder))}"
    )
