"""Tasks by name, imported when they are asked for."""

import importlib
from typing import TYPE_CHECKING, Any

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
# where a task's sections of the recipe are, so that a mistyped key is told before torch is imported
SECTIONS: dict[str, tuple[str, str, str]] = {
    "translation": ("latentalign.translation.config", "DataConfig", "ModelConfig"),
    "vqa": ("latentalign.vqa.config", "VqaDataConfig", "VqaModelConfig"),
    "memory": ("latentalign.memory.config", "MemoryDataConfig", "MemoryModelConfig"),
}


def find_task(name: str) -> "Task":
    """The task of that name, ready to use."""
    _check(name)
    found: Task = importlib.import_module(TASKS[name]).TASK
    return found


def find_sections(name: str) -> tuple[Any, Any]:
    """What a task's `data:` and `model:` may say."""
    _check(name)
    if name not in SECTIONS:
        task = find_task(name)
        return task.DataConfig, task.ModelConfig
    place, data, model = SECTIONS[name]
    module = importlib.import_module(place)
    return getattr(module, data), getattr(module, model)


def _check(name: str) -> None:
    if name not in TASKS:
        raise UserError(f"task: expected a known task, received {name!r}; {hint_at(name, TASKS)}")
