"""Checks of arguments in public functions: shapes by letter, and ranges of numbers."""

from collections.abc import Mapping

from torch import Tensor

from latentalign.alignment.errors import ConfigError, ShapeError


def check_shapes(
    sizes: Mapping[str, int] | None = None, /, **arguments: tuple[Tensor, str]
) -> dict[str, int]:
    """Bind the letters of each argument's spec and raise where two disagree.

    Example:
        >>> import torch
        >>> check_shapes(memory=(torch.zeros(2, 3, 5), "B S D"), mask=(torch.ones(2, 3), "B S"))
        {'B': 2, 'S': 3, 'D': 5}
    """
    bound = dict(sizes or {})
    origin: dict[str, str] = dict.fromkeys(bound, "the other arguments")
    for name, (tensor, spec) in arguments.items():
        letters = spec.split()
        if tensor.dim() != len(letters):
            raise ShapeError(
                f"{name}: expected shape [{','.join(letters)}], received {list(tensor.shape)}; "
                f"it needs {len(letters)} axes"
            )
        for letter, size in zip(letters, tensor.shape, strict=True):
            if bound.setdefault(letter, size) != size:
                raise ShapeError(
                    f"{name}: expected shape [{','.join(letters)}] with {letter}={bound[letter]} as in "
                    f"{origin[letter]}, received {list(tensor.shape)}; check the {letter} axis"
                )
            origin.setdefault(letter, name)
    return bound


def check_positive(name: str, value: float, *, hint: str) -> None:
    """Refuse a value that is not above zero."""
    if not value > 0:
        raise ConfigError(f"{name}: expected a number above 0, received {value}; {hint}")


def check_count(name: str, value: int, *, least: int = 1, hint: str) -> None:
    """Refuse a count below `least`, or one that is no whole number."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name}: expected a whole number of at least {least}, received {value!r}; {hint}")


def check_fraction(name: str, value: float, *, hint: str) -> None:
    """Refuse a value outside [0, 1)."""
    if not 0 <= value < 1:
        raise ConfigError(f"{name}: expected a number from 0 up to but not 1, received {value}; {hint}")
