"""One cell in a process of its own: `python -m latentalign.reports.sounds.run_cell SETTINGS LANGUAGE ROW SEED`."""

import logging
import sys
from pathlib import Path

import torch

from latentalign.errors import UserError
from latentalign.reports.sounds.grid import SoundGrid, SoundSettings
from latentalign.reports.sounds.rows import SoundCell
from latentalign.training.loop.allocator import keep_freed_memory
from latentalign.training.run.stopping import TrainingStopped


def main(arguments: list[str]) -> int:
    """The exit code: 0 when the cell is done."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    torch.set_num_threads(1)
    keep_freed_memory()
    settings, language, row, seed = arguments
    try:
        grid = SoundGrid(SoundSettings.from_json(Path(settings).read_text(encoding="utf-8")))
        grid.work(SoundCell(language, row, int(seed)))
    except TrainingStopped as error:
        logging.error("%s", error)
        return error.code
    except UserError as error:
        logging.error("%s", error)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
