"""Tasks by name, imported when they are asked for."""

import difflib
import importlib

from latentalign.errors import UserError
from latentalign.task import Task

# name -> the module whose TASK it is
TASKS: dict[str, str] = {
    "translation": "latentalign.translation.task",
    "vqa": "latentalign.vqa.task",
    "memory": "latentalign.memory.task",
    "gaussian": "latentalign.gaussian.task",
}


def find_task(name: str) -> Task:
    """The task of that name, ready to use."""
    if name not in TASKS:
        near = difflib.get_close_matches(str(name), TASKS, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(TASKS)}"
        raise UserError(f"task: expected a known task, received {name!r}; {hint}")
    found: Task = importlib.import_module(TASKS[name]).TASK
    return found
