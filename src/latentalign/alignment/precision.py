"""Half precision: which numbers need more digits, and what autocast asks for."""

import contextlib

import torch
from torch import Tensor


def widened(dtype: torch.dtype) -> torch.dtype:
    """float32 for the half precisions, whose 3 or 4 digits are too few for sums of logarithms; else the same."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def autocast_dtype(like: Tensor) -> torch.dtype | None:
    """What autocast computes matrix products in on this tensor's device; None where it is off."""
    kind = like.device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return None
    return torch.get_autocast_dtype(kind)


def unrounded(tensor: Tensor) -> Tensor:
    """What autocast made half precision as float32 again: for logarithms and sums, as torch does on a GPU."""
    return tensor.to(widened(tensor.dtype)) if autocast_dtype(tensor) else tensor


def without_autocast(like: Tensor) -> contextlib.AbstractContextManager[object]:
    """Operations in the dtypes of their inputs, also within autocast."""
    kind = like.device.type
    if not torch.amp.is_autocast_available(kind):
        return contextlib.nullcontext()
    return torch.autocast(kind, enabled=False)
