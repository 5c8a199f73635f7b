"""model.safetensors of a run: the best weights, or the newest ones. Nothing is ever unpickled."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import nn

from latentalign.errors import UserError
from latentalign.files import digest, write_atomic
from latentalign.training.run.config_file import CONFIG
from latentalign.training.run.marker import read_marker

MODEL = "model.safetensors"
_SUMS = "latentalign"  # the entry of the model file that holds its checksums


def save_model(model: nn.Module, folder: Path) -> None:
    """Write the weights, whole or not at all. Weights that share memory are written once.

    The file also holds a checksum of the weights and one of the files they were trained with.
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
