"""Reproduce a study: plan the jobs that are left, do them, collect the rows, and write the results."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from latentalign.errors import UserError, hint_at
from latentalign.files import write_atomic
from latentalign.reports.grid.cells import Cell
from latentalign.reports.grid.grid import Grid
from latentalign.reports.grid.processes import Job, python, run_apart, run_here
from latentalign.reports.grid.settings import GridSettings
from latentalign.reports.grid.study import Parts, Study, find_task_studies
from latentalign.reports.grid.warmups import Warmup

Say = Callable[[str], None]


def reproduce(name: str, settings: GridSettings, *, out: Path, jobs: int, say: Say) -> dict[str, Any]:
    """Train what is missing, measure it, and write the study into the folder `out`; its content comes back.

    `jobs` processes work side by side; 0 does everything in this process.
    """
    specs, studies = find_task_studies(settings.task)
    study, grid = _find(studies, name, settings), Grid(settings, specs)
    cells = _cells(grid, study)
    todo, parts = plan_jobs(grid, study, cells)
    say(
        f"{name}: {len(cells)} cells, {len(cells) - sum(job.name in _names(cells) for job in todo)} done before"
    )

    try:
        if jobs == 0:
            run_here(todo, lambda job: do_job(grid, study, parts[job.name]), say)
        elif todo:
            _run_apart(grid, study, todo, parts, jobs=jobs, say=say)
    except UserError:
        found = collect(grid, study, cells)
        if found["rows"] and study.needs == "rows":
            study.finish(grid, found, out)  # what is done is shown, whatever happened to the rest
        raise
    return study.finish(grid, collect(grid, study, cells), out)


def write_finished(name: str, settings: GridSettings, *, out: Path) -> dict[str, Any]:
    """Write the study of the rows that are measured already; nothing is trained or measured."""
    specs, studies = find_task_studies(settings.task)
    study, grid = _find(studies, name, settings), Grid(settings, specs)
    if study.needs != "rows":
        raise UserError(
            f"--finished: {name} reads the runs themselves, not only their rows; leave --finished out"
        )
    found = collect(grid, study, _cells(grid, study))
    if not found["rows"]:
        raise UserError(
            f"--finished: no row of {name} is measured in {settings.runs}; --adopt takes in other folders"
        )
    return study.finish(grid, found, out)


def _run_apart(
    grid: Grid, study: Study, todo: list[Job], parts: dict[str, Cell | Warmup], *, jobs: int, say: Say
) -> None:
    with tempfile.TemporaryDirectory(prefix="latentalign-") as scratch:
        spec = Path(scratch) / "settings.json"
        write_atomic(spec, grid.settings.to_json())
        run_apart(
            todo,
            lambda job: python("-m", "latentalign.reports.grid.run_job", str(spec), study.name, job.name),
            at_once=jobs,
            logs=grid.runs / "logs",
            say=say,
            done=lambda job: say(f"{job.name}: {_summary(grid, study, parts[job.name])}"),
        )


def describe_plan(name: str, settings: GridSettings) -> list[str]:
    """A line for each cell: measured, trained, or to be trained and from what. Nothing is done."""
    specs, studies = find_task_studies(settings.task)
    study, grid = _find(studies, name, settings), Grid(settings, specs)
    cells = _cells(grid, study)
    jobs, _ = plan_jobs(grid, study, cells)
    needs = {job.name: job.needs for job in jobs}
    lines = [f"{job.name}: shared warm-up, to be trained" for job in jobs if job.name not in _names(cells)]
    for cell in cells:
        folder = grid.find(cell.recipe)
        if cell.name not in needs:
            lines.append(f"{cell.name}: done")
        elif folder is not None:
            lines.append(f"{cell.name}: trained in {folder}, to be measured")
        else:
            lines.append(
                f"{cell.name}: to be trained" + "".join(f", after {need}" for need in needs[cell.name])
            )
    return lines


def _cells(grid: Grid, study: Study) -> list[Cell]:
    """The cells of a study; a row that is asked for has to be one of its rows."""
    for row in grid.settings.only:
        if row not in study.rows:
            raise UserError(f"--only {row}: no row of {study.name}; {hint_at(row, study.rows)}")
    return grid.cells(study.rows)


def _find(studies: Mapping[str, Study], name: str, settings: GridSettings) -> Study:
    if name not in studies:
        raise UserError(
            f"reproduce {name}: expected one of {', '.join(studies)} for the task {settings.task}"
        )
    return studies[name]


def plan_jobs(grid: Grid, study: Study, cells: list[Cell]) -> tuple[list[Job], dict[str, Cell | Warmup]]:
    """What is left to do, warm-ups before the cells that share them; and the part that each job is about."""
    jobs: dict[str, Job] = {}
    parts: dict[str, Cell | Warmup] = {}

    def need(warmups: list[Warmup]) -> tuple[str, ...]:
        before: tuple[str, ...] = ()
        for warmup in warmups:
            if grid.find(warmup.recipe) is None:
                jobs.setdefault(warmup.name, Job(warmup.name, before))
                parts[warmup.name] = warmup
                before = (warmup.name,)
        return before

    for cell in cells:
        warmups = grid.warmups.get(cell.name, [])
        is_trained = grid.find(cell.recipe) is not None
        is_measured = grid.recall(cell, study.name) is not None
        if is_measured and study.needs == "rows":
            continue
        needs = need(warmups) if study.needs == "warmups" or not is_trained else ()
        if not is_trained or not is_measured:
            jobs[cell.name] = Job(cell.name, needs)
            parts[cell.name] = cell
    return list(jobs.values()), parts


def do_job(grid: Grid, study: Study, part: Cell | Warmup, *, echo: bool = False) -> None:
    """Train a warm-up, or train and measure a cell; its row is on disk when this returns."""
    folder = grid.train(part, echo=echo)
    if isinstance(part, Cell):
        grid.remember(part, study.name, lambda: dict(study.measure(grid, part, folder)))


def collect(grid: Grid, study: Study, cells: list[Cell]) -> Parts:
    """The rows of all cells that are done, in the order of the table."""
    parts: Parts = {"rows": []}
    for spec_name in study.rows:
        for cell in cells:
            if cell.spec.name == spec_name:
                for key, values in (grid.recall(cell, study.name) or {}).items():
                    parts.setdefault(key, []).extend(values)
    return parts


def _names(cells: list[Cell]) -> set[str]:
    return {cell.name for cell in cells}


def _summary(grid: Grid, study: Study, part: Cell | Warmup) -> str:
    if isinstance(part, Warmup):
        return "warm-up trained"
    rows = (grid.recall(part, study.name) or {}).get("rows", [])
    wanted = ("inference", "ppl", "nll", "bleu", "score", "prior_entropy", "minutes")
    shown = [", ".join(f"{key} {row[key]}" for key in wanted if row.get(key) is not None) for row in rows]
    return "; ".join(filter(None, shown)) or "measured"
