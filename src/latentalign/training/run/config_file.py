"""config.yaml of a run: the resolved recipe it was trained by."""

from pathlib import Path
from typing import Any

import yaml

from latentalign.errors import UserError
from latentalign.files import write_atomic
from latentalign.training.recipe.overrides import Overrides, apply_settings
from latentalign.training.recipe.recipes import Recipe, build_recipe
from latentalign.training.recipe.yaml_values import read_yaml

CONFIG = "config.yaml"
_GONE = {
    "optimizer",
    "strategy",
}  # of `training`: earlier versions wrote them, with one value that meant nothing


def save_config(recipe: Recipe, folder: Path) -> None:
    """Write the resolved recipe."""
    text = yaml.safe_dump(recipe.resolved(), sort_keys=False, allow_unicode=True)
    write_atomic(folder / CONFIG, text)


def load_config(folder: Path) -> Recipe:
    """The resolved recipe of a run."""
    path = folder / CONFIG
    if not folder.is_dir():
        found = "is a file" if folder.exists() else "no such run folder"
        raise UserError(f"{folder}: {found}; expected a folder that `latentalign train` wrote")
    if not path.is_file():
        raise UserError(
            f"{folder}: not a run folder; expected {CONFIG} in it, as `latentalign train` writes it"
        )
    return build_stored_recipe(read_yaml(path), place=str(path))


def build_stored_recipe(values: dict[str, Any], *, place: str) -> Recipe:
    """A resolved recipe that was stored, perhaps by an earlier version."""
    training = values.get("training")
    if isinstance(training, dict):
        values = {**values, "training": {key: value for key, value in training.items() if key not in _GONE}}
    return build_recipe(values, place=place)


def load_resumed(folder: Path, settings: Overrides, given: Recipe | None = None) -> Recipe:
    """The recipe of a run to go on with; only `training` may be set anew, and a recipe that is given must agree."""
    before = load_config(folder)
    if given is not None:
        now = given
    else:
        now = build_recipe(apply_settings(before.resolved(), settings), place=f"{folder / CONFIG} with --set")
    old, new = before.resolved(), now.resolved()
    for section in ("task", "seed", "data", "model", "objective", "schedule"):
        if old[section] != new[section]:
            raise UserError(
                f"--resume {folder}: {_first_difference(section, old[section], new[section])}; "
                "only training may change when a run is resumed"
            )
    if before.training.weight_decay != now.training.weight_decay:
        difference = _first_difference(
            "training.weight_decay", before.training.weight_decay, now.training.weight_decay
        )
        raise UserError(
            f"--resume {folder}: {difference}; the optimiser was built with the first; start a new run"
        )
    return now


def _first_difference(place: str, old: Any, new: Any) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *new]:
            if old.get(key) != new.get(key):
                return _first_difference(f"{place}.{key}", old.get(key), new.get(key))
    return f"{place} was {old!r} and would be {new!r}"
