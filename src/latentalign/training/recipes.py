"""Recipes: YAML files that are short lists of differences from a base, resolved and checked."""

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

import latentalign
from latentalign.errors import UserError
from latentalign.training.config import PhaseConfig, RecipeConfig, TrainingConfig
from latentalign.training.tasks import find_task


class _Loader(yaml.SafeLoader):
    """Safe YAML that reads 1e-3 as a number, as everybody means it, and refuses a key given twice."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9][0-9_]*)(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def _mapping_without_repeats(loader: Any, node: Any) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"key {key!r} is given twice", key_node.start_mark
            )
        seen.add(key)
    return yaml.SafeLoader.construct_mapping(loader, node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping_without_repeats)


@dataclass(frozen=True)
class Recipe:
    """A checked recipe: the task with its typed sections, and how to train it."""

    task: Any
    seed: int
    data: BaseModel
    model: BaseModel
    objective: str | dict[str, Any]
    schedule: tuple[PhaseConfig, ...]
    training: TrainingConfig

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
    near = difflib.get_close_matches(text.removesuffix(".yaml"), recipe_names(), n=1, cutoff=0.4)
    hint = (
        f"did you mean {near[0]!r}?" if near else f"packaged recipes: {', '.join(recipe_names()) or 'none'}"
    )
    raise UserError(f"{text}: no such recipe; expected a YAML file or the name of a packaged recipe; {hint}")


def parse_yaml(text: str, place: str) -> Any:
    """The value of a YAML text; a syntax error names the place."""
    try:
        return yaml.load(text, Loader=_Loader)  # a SafeLoader: builds plain values only
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise UserError(f"{place}{line}: expected YAML, {problem}") from None


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file that holds a mapping."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{path}: expected YAML in UTF-8, found other bytes") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    values = parse_yaml(text, str(path))
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected a mapping of recipe keys, found {type(values).__name__}")
    return values


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


def merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Mappings merge key by key; a mapping that has a `name` is a choice of its own and replaces what was there."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        together = isinstance(old, dict) and isinstance(value, dict) and "name" not in value
        result[key] = merge(old, value) if together else value  # type: ignore[arg-type]
    return result


def apply_settings(values: dict[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """Apply `a.b=c` settings of the command line, left to right."""
    result: dict[str, Any] = json.loads(json.dumps(values, default=str))
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


def build_recipe(values: Mapping[str, Any], *, place: str = "recipe") -> Recipe:
    """Check the values and give them types."""
    top = validate(RecipeConfig, values, place=place)
    task = find_task(top.task)
    return Recipe(
        task=task,
        seed=top.seed,
        data=validate(task.DataConfig, top.data, place=place, prefix=("data",)),
        model=validate(task.ModelConfig, top.model, place=place, prefix=("model",)),
        objective=top.objective,
        schedule=tuple(top.schedule),
        training=top.training,
    )


def load_recipe(name: str | Path, settings: Iterable[str] = ()) -> Recipe:
    """A recipe by path or name, with the settings of the command line on top."""
    path = find_recipe(name)
    return build_recipe(apply_settings(read_recipe(path), settings), place=str(path))


def validate(kind: type[Any], values: Any, *, place: str, prefix: tuple[str, ...] = ()) -> Any:
    """Check values against a pydantic model, strictly but as JSON (lists for tuples, texts for paths)."""
    try:
        return kind.model_validate_json(json.dumps(values, default=str), strict=True)
    except ValidationError as error:
        # a key that is misspelt explains why another one is missing
        errors = sorted(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
        first = errors[0]
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise UserError(f"{place}, {_explain(kind, first, prefix)}{more}") from None


def _explain(kind: type[BaseModel], error: Any, prefix: tuple[str, ...]) -> str:
    location = tuple(str(part) for part in error["loc"])
    key = ".".join((*prefix, *location)) or "the recipe"
    if error["type"] == "extra_forbidden":
        names = _names_at(kind, location[:-1])
        near = difflib.get_close_matches(location[-1], names, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(sorted(names))}"
        return f"{key}: unknown key; {hint}"
    if error["type"] == "missing":
        return f"{key}: missing; the recipe must give it"
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    received = json.dumps(error.get("input"), default=str)
    received = received if len(received) <= 60 else received[:57] + "..."
    wanted = message if message.startswith("expected") else f"expected {message}"
    return f"{key}: {wanted}, received {received}"


def _names_at(kind: Any, location: tuple[str, ...]) -> list[str]:
    """Field names of the section at that place of the model."""
    for part in location:
        fields = getattr(kind, "model_fields", {})
        if part in fields:
            kind = _section_of(fields[part].annotation) or kind
    return list(getattr(kind, "model_fields", {}))


def _section_of(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        if found := _section_of(argument):
            return found
    return None
