"""One job of a grid in a process of its own: `python -m latentalign.reports.grid.run_job SETTINGS STUDY JOB`."""

import logging
import sys
from pathlib import Path

import torch

from latentalign.errors import UserError
from latentalign.reports.grid.cells import Cell
from latentalign.reports.grid.grid import Grid
from latentalign.reports.grid.reproduce import do_job
from latentalign.reports.grid.settings import GridSettings
from latentalign.reports.grid.study import find_task_studies
from latentalign.reports.grid.warmups import Warmup
from latentalign.training.loop.allocator import keep_freed_memory
from latentalign.training.run.stopping import TrainingStopped


def work(settings: GridSettings, study: str, job: str) -> None:
    """Do one job by its name."""
    specs, studies = find_task_studies(settings.task)
    grid = Grid(settings, specs)
    do_job(grid, studies[study], find_part(grid, job), echo=True)  # into the job's log


def find_part(grid: Grid, name: str) -> Cell | Warmup:
    """The cell or warm-up of that name."""
    for chain in grid.warmups.values():
        for warmup in chain:
            if warmup.name == name:
                return warmup
    return grid.cell(name)


def main(arguments: list[str]) -> int:
    """The exit code: 0 when the job is done."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    torch.set_num_threads(1)
    keep_freed_memory()
    settings, study, job = arguments
    try:
        work(GridSettings.from_json(Path(settings).read_text(encoding="utf-8")), study, job)
    except TrainingStopped as error:
        logging.error("%s", error)
        return error.code
    except UserError as error:
        logging.error("%s", error)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
