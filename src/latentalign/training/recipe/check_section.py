"""Check values against a section of the recipe; a mistake becomes one line that names the key."""

import difflib
import json
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from latentalign.errors import UserError


def check_section(kind: type[Any], values: Any, *, place: str, prefix: tuple[str, ...] = ()) -> Any:
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
    sections = [kind]
    for part in location:
        if tagged := [section for section in sections if part in _tags_of(section)]:
            sections = tagged  # a choice by name: pydantic puts the name into the place
            continue
        found = [
            inner
            for section in sections
            if part in section.model_fields
            for inner in _sections_of(section.model_fields[part].annotation)
        ]
        sections = found or sections
    return [name for section in sections for name in section.model_fields]


def _tags_of(section: Any) -> tuple[Any, ...]:
    """Names by which a tagged choice is chosen."""
    return get_args(section.model_fields["name"].annotation) if "name" in section.model_fields else ()


def _sections_of(annotation: Any) -> list[Any]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for argument in get_args(annotation) for found in _sections_of(argument)]
