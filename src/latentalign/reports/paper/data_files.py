"""Where a task's training and test data lie in the folder that `reproduce` is given."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentalign.errors import UserError
from latentalign.training.recipe.recipes import find_recipe, read_recipe

RECIPES = {"translation": "reproduce-multi30k", "vqa": "vqa-scenes"}


@dataclass(frozen=True)
class Places:
    """Changes to the recipe's `data:`, and arguments of the task's test set."""

    data: dict[str, Any]
    test: dict[str, str]


def default_recipe(task: str) -> str:
    """The recipe that a task's tables start from."""
    if task not in RECIPES:
        raise UserError(f"--task {task}: expected one of {', '.join(RECIPES)}")
    return RECIPES[task]


def locate(task: str, recipe: str, data: Path, *, source: Path | None, target: Path | None) -> Places:
    """Find the data of a task; a folder or file that is missing is the user's mistake."""
    if task == "vqa":
        return Places({"folder": str(data)}, {"data": str(data), "split": "test"})
    if not data.is_dir():
        raise UserError(
            f"--data {data}: no such folder; `latentalign download multi30k --to {data}` gets one"
        )
    if (source is None) != (target is None):
        raise UserError("--source and --target: expected both or neither")
    if source is None or target is None:
        source, target = _find_test_set(recipe, data)
    for option, path in (("--source", source), ("--target", target)):
        if not path.is_file():
            raise UserError(f"{option} {path}: no such file; expected the test sentences, one a line")
    return Places({"folder": str(data)}, {"source": str(source), "target": str(target)})


def _find_test_set(recipe: str, data: Path) -> tuple[Path, Path]:
    """`test*` with the endings of the recipe's training files: train.de.gz -> test_2016_flickr.de.gz."""
    train = read_recipe(find_recipe(recipe)).get("data", {}).get("train", {})
    names = [train.get(side) for side in ("source", "target")]
    if not all(isinstance(name, str) for name in names):
        raise UserError("--source and --target: needed, since the recipe does not train on one pair of files")
    endings = [name[name.index(".") :] if "." in name else "" for name in names]
    for path in sorted(data.iterdir()):
        match = re.fullmatch(r"(test[^.]*)" + re.escape(endings[0]), path.name)
        if match and (data / f"{match[1]}{endings[1]}").is_file():
            return path, data / f"{match[1]}{endings[1]}"
    raise UserError(
        f"--data {data}: no test set; expected test*{endings[0]} and test*{endings[1]} in it, or --source and --target"
    )
