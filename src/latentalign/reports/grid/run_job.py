"""One job of a grid in a process of its own: `python -m latentalign.reports.grid.run_job SETTINGS STUDY JOB`."""

import sys
from pathlib import Path

from latentalign.reports.grid.cells import Cell
from latentalign.reports.grid.grid import Grid
from latentalign.reports.grid.job_process import exit_code_of
from latentalign.reports.grid.reproduce import do_job
from latentalign.reports.grid.settings import GridSettings
from latentalign.reports.grid.study import find_task_studies
from latentalign.reports.grid.warmups import Warmup


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
    settings, study, job = arguments
    return exit_code_of(
        lambda: work(GridSettings.from_json(Path(settings).read_text(encoding="utf-8")), study, job)
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
