"""Nested values on top of others: a recipe over its base, `--set a.b=c` over a recipe."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from latentalign.errors import UserError
from latentalign.training.recipe.yaml_values import parse_yaml

Overrides = Iterable[str] | Mapping[str, Any]  # `a.b=c` as on the command line, or {"a.b": c}


def merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Mappings merge key by key; a mapping that has a `name` is a choice of its own and replaces what was there."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        together = isinstance(old, dict) and isinstance(value, dict) and "name" not in value
        result[key] = merge(old, value) if together else value  # type: ignore[arg-type]
    return result


def apply_settings(values: dict[str, Any], settings: Overrides) -> dict[str, Any]:
    """Put settings on top of the values, the last one last.

    Example:
        >>> apply_settings({"training": {"epochs": 3}}, ["training.epochs=1e1"])
        {'training': {'epochs': 10.0}}
        >>> apply_settings({"training": {"epochs": 3}}, {"training.epochs": 10, "seed": 2})
        {'training': {'epochs': 10}, 'seed': 2}
    """
    result: dict[str, Any] = json.loads(json.dumps(values, default=str))
    if isinstance(settings, Mapping):
        for path, value in settings.items():
            plain = json.loads(json.dumps(value, default=str))
            _set(result, path.split("."), plain, f"{path}={value}")
        return result
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not path.strip():
            raise UserError(f"--set {setting}: expected key=value, for example --set training.epochs=3")
        _set(result, path.strip().split("."), parse_yaml(text, f"--set {path}"), setting)
    return result


def _set(values: Any, path: list[str], value: Any, setting: str) -> None:
    place = values
    for number, key in enumerate(path):
        last = number == len(path) - 1
        if isinstance(place, list):
            if not key.isdigit() or int(key) >= len(place):
                raise UserError(f"--set {setting}: {key!r} is no entry of a list of {len(place)}")
            index: Any = int(key)
        elif isinstance(place, dict):
            index = key
            if not last and place.get(key) is None:
                place[key] = {}
        else:
            raise UserError(
                f"--set {setting}: {'.'.join(path[:number])} is {place!r}, not a mapping; set it whole"
            )
        if last:
            place[index] = value
        else:
            place = place[index]
