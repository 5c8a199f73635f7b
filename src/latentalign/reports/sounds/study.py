"""`reproduce g2p`: train what is missing, measure it, and write the page of what is there."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from latentalign.errors import UserError
from latentalign.files import write_atomic
from latentalign.reports.grid.processes import Job, python, run_apart, run_here
from latentalign.reports.sounds.grid import SoundGrid, SoundSettings
from latentalign.reports.sounds.page import write_results
from latentalign.reports.sounds.rows import ENSEMBLES, ROWS, TOGETHER, SoundCell, plan_cells

Say = Callable[[str], None]


def choose_cells(
    grid: SoundGrid, languages: Sequence[str], only: Sequence[str], seeds: Sequence[int]
) -> list[SoundCell]:
    """The cells that are asked for; a language without data or a row that does not exist is a mistake.

    A run for many languages is trained if it is asked for by name or all its languages are.
    """
    rows = (*ROWS, *ENSEMBLES)
    if unknown := [row for row in only if row not in rows]:
        raise UserError(f"--only {unknown[0]}: no such row; choose from {', '.join(rows)}")
    cells = plan_cells(languages, [row for row in rows if not only or row in only], seeds)
    if not only and not set(TOGETHER) <= set(languages):
        cells = [cell for cell in cells if cell.tag is None]
    together = TOGETHER if any(cell.tag is not None for cell in cells) else ()
    for language in dict.fromkeys([*languages, *together]):
        grid.require(language)
    return cells


def describe(grid: SoundGrid, cells: Sequence[SoundCell]) -> list[str]:
    """A line for each cell. Nothing is done."""
    todo = plan(grid, cells)
    return [f"{cell.name}: {'to be trained' if cell.name in todo else 'done'}" for cell in cells]


def reproduce(
    settings: SoundSettings, cells: Sequence[SoundCell], *, out: Path, jobs: int, say: Say
) -> dict[str, Any]:
    """Train and measure what is missing, `jobs` at once (0: in this process), and write the results into `out`.

    When a cell fails or the command is interrupted, what is done is written all the same.
    """
    grid = SoundGrid(settings)
    todo = plan(grid, cells)
    say(f"g2p: {len(cells)} cells, {len(cells) - len(todo)} done before")
    listed = [
        Job(name, tuple(one.name for one in cell.needs if one.name in todo)) for name, cell in todo.items()
    ]
    try:
        if jobs == 0:
            run_here(listed, lambda job: _work(grid, todo[job.name]), say)
        elif listed:
            _run_apart(grid, listed, todo, jobs=jobs, say=say)
    except UserError:
        write_results(grid, cells, out)
        raise
    return write_results(grid, cells, out)


def write_finished(grid: SoundGrid, cells: Sequence[SoundCell], *, out: Path) -> dict[str, Any]:
    """Write the page of the cells that are measured already; nothing is trained or measured."""
    if all(grid.recall(cell) is None for cell in cells):
        raise UserError(
            f"--finished: none of these cells is measured in {grid.runs}; --adopt takes in other folders"
        )
    return write_results(grid, cells, out)


def plan(grid: SoundGrid, cells: Sequence[SoundCell]) -> dict[str, SoundCell]:
    """What is to be done, and before it what it needs: runs, not only rows."""
    missing = [cell for cell in cells if grid.recall(cell) is None]
    needed = [one for cell in missing for one in (*cell.needs, cell) if grid.recall_here(one) is None]
    return {cell.name: cell for cell in needed}


def _work(grid: SoundGrid, cell: SoundCell) -> None:
    grid.work(cell, echo=False)


def _run_apart(
    grid: SoundGrid, jobs_to_do: list[Job], cells: dict[str, SoundCell], *, jobs: int, say: Say
) -> None:
    def command(job: Job) -> list[str]:
        cell = cells[job.name]
        arguments = (cell.language, cell.row, str(cell.seed))
        return python("-m", "latentalign.reports.sounds.run_cell", str(spec), *arguments)

    def report(job: Job) -> None:
        row = grid.recall(cells[job.name]) or {}
        wanted = ("nll", "word_error", "prior_entropy", "minutes")
        say(f"{job.name}: " + ", ".join(f"{key} {row[key]}" for key in wanted if key in row))

    with tempfile.TemporaryDirectory(prefix="latentalign-") as scratch:
        spec = Path(scratch) / "settings.json"
        write_atomic(spec, grid.settings.to_json())
        run_apart(jobs_to_do, command, at_once=jobs, logs=grid.runs / "logs", say=say, done=report)
