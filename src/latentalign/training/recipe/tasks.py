"""Tasks by name, imported when they are asked for.

A task's module ends with `TASK`. Where there is a module `config` beside it, that ends with `SECTIONS`, the models of
the recipe's `data:` and `model:`: it needs no torch, so that a mistyped key is found at once.
"""

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pydantic import BaseModel

from latentalign.errors import UserError, hint_at

if TYPE_CHECKING:
    from latentalign.task import Task

# name -> the module whose TASK it is
TASKS: dict[str, str] = {
    "translation": "latentalign.translation.task",
    "vqa": "latentalign.vqa.task",
    "memory": "latentalign.memory.task",
    "gaussian": "latentalign.gaussian.task",
}


def find_task(name: str) -> "Task":
    """The task of that name, ready to use."""
    _check(name)
    found: Task = importlib.import_module(TASKS[name]).TASK
    return found


def find_sections(name: str) -> tuple[type[BaseModel], type[BaseModel]]:
    """What a task's `data:` and `model:` may say."""
    _check(name)
    beside = f"{TASKS[name].rpartition('.')[0]}.config"
    if find_spec(beside) is None:
        task = find_task(name)
        return task.DataConfig, task.ModelConfig
    found: tuple[type[BaseModel], type[BaseModel]] = importlib.import_module(beside).SECTIONS
    return found


def _check(name: str) -> None:
    if name not in TASKS:
        raise UserError(f"task: expected a known task, received {name!r}; {hint_at(name, TASKS)}")
