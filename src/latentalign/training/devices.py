"""Where a model computes: `auto`, `cpu`, `cuda` or `mps` as a device of torch."""

import torch

from latentalign.errors import UserError

DEVICES = ("auto", "cpu", "cuda", "mps")


def find_device(name: str | torch.device = "auto") -> torch.device:
    """The device of that name; `auto` is the GPU where there is one, else the CPU.

    `auto` never chooses `mps`: it lacks double precision, which some measures need.

    Example:
        >>> find_device("cpu")
        device(type='cpu')
    """
    text = str(name)
    kind, _, number = text.partition(":")
    if kind not in DEVICES or (number and not (kind == "cuda" and number.isdigit())):
        raise UserError(f"device: expected one of {', '.join(DEVICES)}, received {text!r}")
    if kind == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}[kind]
    if found <= int(number or 0):
        raise UserError(f"device: {text} was asked for, but there is none here; use auto or cpu")
    return torch.device(text)
