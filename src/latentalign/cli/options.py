"""What every option of every command refuses, whatever it is for, and options that several commands share."""

import functools
import inspect
import math
from collections.abc import Callable
from typing import Annotated, Any, get_args

import typer

from latentalign.errors import UserError

DeviceOption = Annotated[
    str, typer.Option("--device", help="auto (a GPU where there is one), cpu, cuda or mps.")
]
LARGEST = 2**31 - 1  # a seed, a size or a count beyond this overflows somewhere, and is never needed


def deferred(command: Callable[..., Any]) -> Callable[..., Callable[[], Any]]:
    """A command that is called with its options and hands back what is to be done.

    A command is a function, or, where it has many options, a class of them whose objects are called. Either way the
    parser of the command line has finished before the work begins, and has no part in how it ends. Numbers
    that are not finite or too large, and text that is none, are refused before anything is loaded.
    """
    signature = inspect.signature(command)
    parameters = signature.parameters

    def parsed(**values: Any) -> Callable[[], Any]:
        for name, value in values.items():
            for one in value if isinstance(value, list | tuple) else [value]:
                _check_value(one, _option_name(name, parameters[name]))
        return command(**values) if isinstance(command, type) else functools.partial(command, **values)

    # by these the parser knows the options
    parsed.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    parsed.__signature__ = signature  # type: ignore[attr-defined]
    return parsed


def _check_value(value: Any, option: str) -> None:
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise UserError(f"{option}: expected text in UTF-8, received other bytes") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{option}: expected a finite number, received {value}")
    if isinstance(value, int) and not -LARGEST <= value <= LARGEST:
        raise UserError(f"{option}: expected a whole number up to {LARGEST}, received {str(value)[:40]}")


def _option_name(name: str, parameter: inspect.Parameter) -> str:
    """The option as a user writes it, or the name of an argument."""
    for declared in (parameter.default, *get_args(parameter.annotation)):
        if declarations := getattr(declared, "param_decls", None):
            return next(iter(declarations))
    return f"--{name.replace('_', '-')}"
