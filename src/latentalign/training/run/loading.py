"""Run folders: what a trained run is on disk, and how every other command gets it back.

`run.json` (what makes it a run), `config.yaml` (resolved), the task's own files, `model.safetensors` (the best
weights), `metrics.jsonl`, `log.txt`, `environment.json`, `checkpoints/`. Nothing in it is ever unpickled.
"""

import json
from collections.abc import Mapping
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
from latentalign.files import digest, write_atomic
from latentalign.training.recipe.overrides import apply_settings
from latentalign.training.recipe.recipes import Recipe, build_recipe
from latentalign.training.recipe.schedule import Schedule, build_schedule
from latentalign.training.recipe.yaml_values import read_yaml
from latentalign.training.run.marker import read_marker, verify_parts

CONFIG = "config.yaml"
MODEL = "model.safetensors"
_SUMS = "latentalign"  # the entry of the model file that holds its checksums


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
        found = "is a file" if folder.exists() else "no such run folder"
        raise UserError(f"{folder}: {found}; expected a folder that `latentalign train` wrote")
    if not path.is_file():
        raise UserError(
            f"{folder}: not a run folder; expected {CONFIG} in it, as `latentalign train` writes it"
        )
    return build_recipe(read_yaml(path), place=str(path))


def save_model(model: nn.Module, folder: Path) -> None:
    """Write the weights, whole or not at all. Weights that share memory are written once.

    Beside them stand a checksum of their own and one of the files they were trained with.
    """
    tensors: dict[str, torch.Tensor] = {}
    seen: dict[int, str] = {}
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() in seen and tensor.numel():
            continue
        seen[tensor.data_ptr()] = name
        tensors[name] = tensor.detach().cpu().contiguous()
    sums = {"sha256": _digest_of(tensors)}
    if (marker := read_marker(folder)) is not None:
        sums["trained_with"] = marker.parts
    # one entry: safetensors writes several in any order, and the same weights should give the same file
    write_atomic(folder / MODEL, save_tensors(tensors, metadata={_SUMS: json.dumps(sums)}))


def _digest_of(tensors: Mapping[str, torch.Tensor]) -> str:
    """A checksum of names, shapes and values."""
    parts: list[Any] = []
    for name, tensor in sorted(tensors.items()):
        parts += [f"{name} {tensor.dtype} {list(tensor.shape)}", tensor.reshape(-1).view(torch.uint8).numpy()]
    return digest(*parts)


def load_weights(model: nn.Module, folder: Path) -> None:
    """Read the weights of a run into a model of its shape."""
    path = folder / MODEL
    if not path.is_file():
        raise UserError(
            f"{folder}: the run has no {MODEL}; training has not come to its first validation, "
            f"go on with: latentalign train --resume {folder}"
        )
    tensors = _read_weights(path)
    own = model.state_dict()
    for name, tensor in tensors.items():
        if name not in own:
            raise UserError(f"{path}: weight {name} does not belong to the model that {CONFIG} describes")
        if own[name].shape != tensor.shape:
            raise UserError(
                f"{path}: weight {name}: expected shape {list(own[name].shape)}, found {list(tensor.shape)}; "
                f"the file does not belong to {CONFIG}"
            )
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise UserError(f"{path}: weight {name} has values that are NaN or infinite; train once more")
    missing = {name for name in own if name not in tensors}
    shared = {own[name].data_ptr() for name in tensors}
    lost = sorted(name for name in missing if own[name].data_ptr() not in shared)
    if lost:
        raise UserError(f"{path}: weight {lost[0]} is missing ({len(lost)} in all); the file is not complete")
    model.load_state_dict(tensors, strict=False)


def _read_weights(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a model file, verified by the checksums it carries (those of earlier versions have none)."""
    content = path.read_bytes()
    try:
        tensors = load_tensors(content)
        length = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + length]).get("__metadata__") or {}
        sums = json.loads(metadata.get(_SUMS, "{}"))
    except (SafetensorError, ValueError) as error:
        raise UserError(f"{path}: damaged model file ({error}); copy it again or train once more") from None
    if sums.get("sha256", _digest_of(tensors)) != _digest_of(tensors):
        raise UserError(
            f"{path}: damaged model file (its checksum differs); copy it again or train once more"
        )
    if (trained_with := sums.get("trained_with")) is not None:
        marker = read_marker(path.parent)
        if marker is None or marker.parts != trained_with:
            raise UserError(
                f"{path}: these weights were not trained with the files beside them; copy the whole run folder"
            )
    return tensors


def load_run(path: str | Path, *, device: torch.device | str = "cpu") -> Run:
    """A trained run from its folder alone, for every command that uses one."""
    folder = Path(path)
    recipe = load_config(folder)
    schedule = schedule_of(recipe)
    if not (folder / MODEL).is_file():
        raise UserError(
            f"{folder}: the run has no {MODEL}; train it to its first validation: latentalign train --resume {folder}"
        )
    if (marker := read_marker(folder)) is not None:
        verify_parts(folder, marker, recipe.resolved())
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
