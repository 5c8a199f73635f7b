"""A process that does one job of a grid: one thread, its log on stderr, an exit code that says how it ended."""

import logging
import sys
from collections.abc import Callable

import torch

from latentalign.errors import UserError
from latentalign.training.loop.allocator import keep_freed_memory
from latentalign.training.run.stopping import TrainingStopped


def exit_code_of(work: Callable[[], None]) -> int:
    """Do the work; 0 when it is done."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    torch.set_num_threads(1)
    keep_freed_memory()
    try:
        work()
    except TrainingStopped as error:
        logging.error("%s", error)
        return error.code
    except UserError as error:
        logging.error("%s", error)
        return 2
    return 0
