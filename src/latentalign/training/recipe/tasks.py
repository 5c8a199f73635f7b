"""Tasks by name, imported when they are asked for."""

import difflib
import importlib
from typing import Any

from latentalign.errors import UserError

# name -> "module:attribute"; the attribute is the task's class (or an instance of it)
TASKS: dict[str, str] = {
    "translation": "latentalign.translation.task:TranslationTask",
    "vqa": "latentalign.vqa.task:VqaTask",
    "memory": "latentalign.memory.task:MemoryTask",
    "gaussian": "latentalign.gaussian.task:GaussianTask",
}


def find_task(name: str) -> Any:
    """The task of that name, ready to use."""
    if name not in TASKS:
        near = difflib.get_close_matches(str(name), TASKS, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(TASKS)}"
        raise UserError(f"task: expected a known task, received {name!r}; {hint}")
    module, attribute = TASKS[name].split(":")
    found = getattr(importlib.import_module(module), attribute)
    return found() if isinstance(found, type) else found
