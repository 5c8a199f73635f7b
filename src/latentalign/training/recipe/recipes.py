"""Recipes: YAML files that are short lists of differences from a base, resolved and checked."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

import latentalign
from latentalign.errors import UserError
from latentalign.training.recipe.check_section import check_section
from latentalign.training.recipe.overrides import Overrides, apply_settings, merge
from latentalign.training.recipe.sections import PhaseConfig, RecipeConfig, TrainingConfig
from latentalign.training.recipe.tasks import find_sections, find_task
from latentalign.training.recipe.yaml_values import check_plain, read_yaml

if TYPE_CHECKING:
    from latentalign.task import Log, Prepared, Task


@dataclass(frozen=True)
class Recipe:
    """A checked recipe: the task with its typed sections, and how to train it."""

    task: "Task"
    seed: int
    data: BaseModel
    model: BaseModel
    objective: str | dict[str, Any]
    schedule: tuple[PhaseConfig, ...]
    training: TrainingConfig

    def prepare(self, folder: Path, log: "Log") -> "Prepared":
        """Let the task read its data, and write what a run needs of them into the folder."""
        return self.task.prepare(self.data, self.model, folder=folder, seed=self.seed, log=log)

    def resolved(self) -> dict[str, Any]:
        """Everything written out, defaults included, as plain values: what `config.yaml` of a run holds."""
        return {
            "task": self.task.name,
            "seed": self.seed,
            "data": self.data.model_dump(mode="json"),
            "model": self.model.model_dump(mode="json"),
            "objective": self.objective,
            "schedule": [phase.model_dump(mode="json") for phase in self.schedule],
            "training": self.training.model_dump(mode="json"),
        }


def recipe_folders() -> list[Path]:
    """Where recipes without a path are looked for: in the installed package, and in a checkout."""
    package = Path(latentalign.__file__).parent
    return [package / "recipes", package.parents[1] / "recipes"]


def recipe_names() -> list[str]:
    """Names of the packaged recipes."""
    names = {
        str(path.relative_to(folder).with_suffix(""))
        for folder in recipe_folders()
        if folder.is_dir()
        for path in folder.rglob("*.yaml")
    }
    return sorted(names)


def find_recipe(name: str | Path, *, beside: Path | None = None) -> Path:
    """A recipe's file: a path (relative to `beside` first), or the name of a packaged recipe."""
    text = str(name)
    folders = [*([beside] if beside else []), Path(), *recipe_folders()]
    for folder in folders:
        for candidate in (folder / text, folder / f"{text}.yaml"):
            if candidate.is_file():
                return candidate
    beside_it = [str(path) for path in Path(text).parent.glob("*.yaml")] if len(text) < 200 else []
    near = difflib.get_close_matches(text, beside_it, n=1, cutoff=0.8)
    near = near or difflib.get_close_matches(text.removesuffix(".yaml"), recipe_names(), n=1, cutoff=0.4)
    hint = (
        f"did you mean {near[0]!r}?" if near else f"packaged recipes: {', '.join(recipe_names()) or 'none'}"
    )
    raise UserError(f"{text}: no such recipe; expected a YAML file or the name of a packaged recipe; {hint}")


def read_recipe(path: Path, *, _seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The values of a recipe with those of its `base` underneath."""
    if path.resolve() in _seen:
        raise UserError(f"{path}: base recipes go round in a circle")
    values = read_yaml(path)
    base = values.pop("base", None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise UserError(f"{path}, base: expected the name of a recipe, received {base!r}")
    below = read_recipe(find_recipe(base, beside=path.parent), _seen=(*_seen, path.resolve()))
    return merge(below, values)


def build_recipe(values: Mapping[str, Any], *, place: str = "recipe") -> Recipe:
    """Check the values and give them types."""
    check_plain(values, place)
    top = check_section(RecipeConfig, values, place=place)
    data, model = find_sections(top.task)
    return Recipe(
        data=check_section(data, top.data, place=place, prefix=("data",)),
        model=check_section(model, top.model, place=place, prefix=("model",)),
        task=find_task(top.task),
        seed=top.seed,
        objective=top.objective,
        schedule=tuple(top.schedule),
        training=top.training,
    )


def load_recipe(name: str | Path, settings: Overrides = ()) -> Recipe:
    """A recipe by path or name, with settings on top."""
    path = find_recipe(name)
    return build_recipe(apply_settings(read_recipe(path), settings), place=str(path))
