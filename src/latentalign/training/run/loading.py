"""Run folders: what a trained run is on disk, and how every other command gets it back.

`config.yaml` (resolved), the task's own files, `model.safetensors` (the best weights), `metrics.jsonl`, `log.txt`,
`environment.json`, `checkpoints/`. Nothing that is loaded from it is ever unpickled.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import nn

from latentalign.errors import UserError
from latentalign.files import write_atomic
from latentalign.training.recipe.overrides import apply_settings
from latentalign.training.recipe.recipes import Recipe, build_recipe
from latentalign.training.recipe.schedule import Schedule, build_schedule
from latentalign.training.recipe.yaml_values import read_yaml

CONFIG = "config.yaml"
MODEL = "model.safetensors"


@dataclass(frozen=True)
class Run:
    """A trained run, ready to use: the model is in evaluation mode."""

    config: Recipe
    task: Any
    assets: Any
    model: Any
    folder: Path
    schedule: Schedule


def schedule_of(recipe: Recipe) -> Schedule:
    """The phases of a recipe."""
    return build_schedule(recipe.objective, recipe.schedule, recipe.training.epochs)


def save_config(recipe: Recipe, folder: Path) -> None:
    """Write the resolved recipe."""
    text = yaml.safe_dump(recipe.resolved(), sort_keys=False, allow_unicode=True)
    write_atomic(folder / CONFIG, text)


def load_config(folder: Path) -> Recipe:
    """The resolved recipe of a run."""
    path = folder / CONFIG
    if not folder.is_dir():
        raise UserError(f"{folder}: no such run folder; expected one that `latentalign train` wrote")
    if not path.is_file():
        raise UserError(
            f"{folder}: not a run folder; expected {CONFIG} in it, as `latentalign train` writes it"
        )
    return build_recipe(read_yaml(path), place=str(path))


def save_model(model: nn.Module, folder: Path) -> None:
    """Write the weights, whole or not at all. Weights that share memory are written once."""
    tensors: dict[str, torch.Tensor] = {}
    seen: dict[int, str] = {}
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() in seen and tensor.numel():
            continue
        seen[tensor.data_ptr()] = name
        tensors[name] = tensor.detach().cpu().contiguous()
    write_atomic(folder / MODEL, save_tensors(tensors, metadata={"format": "pt"}))


def load_weights(model: nn.Module, folder: Path) -> None:
    """Read the weights of a run into a model of its shape."""
    path = folder / MODEL
    if not path.is_file():
        raise UserError(
            f"{folder}: the run has no {MODEL}; training has not come to its first validation, "
            f"go on with: latentalign train --resume {folder}"
        )
    try:
        tensors = load_tensors(path.read_bytes())
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path}: damaged model file ({error}); copy it again or train once more") from None
    own = model.state_dict()
    for name, tensor in tensors.items():
        if name not in own:
            raise UserError(f"{path}: weight {name} does not belong to the model that {CONFIG} describes")
        if own[name].shape != tensor.shape:
            raise UserError(
                f"{path}: weight {name}: expected shape {list(own[name].shape)}, found {list(tensor.shape)}; "
                f"the file does not belong to {CONFIG}"
            )
    missing = {name for name in own if name not in tensors}
    shared = {own[name].data_ptr() for name in tensors}
    lost = sorted(name for name in missing if own[name].data_ptr() not in shared)
    if lost:
        raise UserError(f"{path}: weight {lost[0]} is missing ({len(lost)} in all); the file is not complete")
    model.load_state_dict(tensors, strict=False)


def load_run(path: str | Path, *, device: torch.device | str = "cpu") -> Run:
    """A trained run from its folder alone, for every command that uses one."""
    folder = Path(path)
    recipe = load_config(folder)
    schedule = schedule_of(recipe)
    if not (folder / MODEL).is_file():
        raise UserError(
            f"{folder}: the run has no {MODEL}; train it to its first validation: latentalign train --resume {folder}"
        )
    try:
        assets = recipe.task.load_assets(folder)
    except FileNotFoundError as error:
        raise UserError(f"{folder}: the run folder is not complete, {error.filename} is missing") from None
    model = recipe.task.build_model(recipe.model, assets, needs_posterior=schedule.needs_posterior)
    load_weights(model, folder)
    model.to(device)
    model.eval()
    return Run(recipe, recipe.task, assets, model, folder, schedule)


def load_resumed(folder: Path, settings: list[str], given: Recipe | None = None) -> Recipe:
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
    return now


def _first_difference(place: str, old: Any, new: Any) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *new]:
            if old.get(key) != new.get(key):
                return _first_difference(f"{place}.{key}", old.get(key), new.get(key))
    return f"{place} was {old!r} and would be {new!r}"
