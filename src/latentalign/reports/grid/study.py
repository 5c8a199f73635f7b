"""Studies: a table or figure as rows to train, a way to measure each, and what is written at the end."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from latentalign.errors import UserError
from latentalign.reports.grid.cells import Cell
from latentalign.reports.grid.grid import Grid
from latentalign.reports.grid.phase_plan import RowSpec

Parts = dict[str, list[dict[str, Any]]]  # "rows", and further lists where a table has them

# task -> module with SPECS (rows by name) and STUDIES (studies by name)
_TASKS: dict[str, str] = {
    "translation": "latentalign.reports.paper.translation_study",
    "vqa": "latentalign.reports.paper.vqa_study",
}


@dataclass(frozen=True)
class Study:
    """One table or figure.

    `measure` turns a finished run into rows; `finish` gets the rows of all cells, adds what compares them and
    writes the tables and pictures. Both get the grid, which finds runs and remembers measurements.
    """

    name: str
    rows: tuple[str, ...]  # names of specs
    measure: Callable[[Grid, Cell, Path], Parts]
    finish: Callable[[Grid, Parts, Path], dict[str, Any]]
    needs: Literal["rows", "runs", "warmups"] = "rows"  # what `finish` looks at: rows alone, or weights too


def find_task_studies(task: str) -> tuple[Mapping[str, RowSpec], Mapping[str, Study]]:
    """Rows and studies of a task."""
    if task not in _TASKS:
        raise UserError(f"--task {task}: expected one of {', '.join(_TASKS)}")
    module = importlib.import_module(_TASKS[task])
    return module.SPECS, module.STUDIES
