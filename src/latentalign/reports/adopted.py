"""Rows of results that were measured before, perhaps on another machine: taken over instead of training again.

A row is taken over only if the recipe beside it (`recipes.json`) is the one that the row would be trained by today.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from latentalign.errors import UserError
from latentalign.reports.provenance import RECIPES, Values, fingerprint_of, recipe_values
from latentalign.training.recipe.recipes import Recipe
from latentalign.training.run.config_file import build_stored_recipe


def find_results(folders: Iterable[str], study: str) -> "list[AdoptedResults]":
    """The results of a study in these folders; a folder without them may hold runs, which others look for."""
    paths = [Path(folder) / f"{study}.json" for folder in folders]
    return [AdoptedResults(path) for path in paths if path.is_file()]


class AdoptedResults:
    """The results of one study, as `reproduce` wrote them."""

    def __init__(self, path: Path) -> None:
        recipes = path.parent / RECIPES
        self.content: dict[str, Any] = _read(path)
        self._recipes: dict[str, Any] = _read(recipes) if recipes.is_file() else {}
        self._place = str(recipes)

    def rows(self, recipe: Recipe, **wanted: Any) -> list[dict[str, Any]]:
        """The rows with these values that were trained by this recipe; they carry its fingerprint of today."""
        named = [row for row in self.content.get("rows", []) if _agrees(row, wanted)]
        today = recipe_values(recipe)
        return [
            {**row, "fingerprint": fingerprint_of(today)} for row in named if self._recipe_of(row) == today
        ]

    def entries(self, part: str, **wanted: Any) -> list[dict[str, Any]]:
        """Entries of another list of the results with these values."""
        return [entry for entry in self.content.get(part, []) if _agrees(entry, wanted)]

    def _recipe_of(self, row: dict[str, Any]) -> Values | None:
        """The recipe of a row as today's code reads it: settings that are new since then have their defaults."""
        values = self._recipes.get(row.get("fingerprint") or "")
        try:
            return (
                None
                if values is None
                else recipe_values(build_stored_recipe({**values, "seed": 1}, place=self._place))
            )
        except UserError:  # a setting is gone
            return None


def _agrees(entry: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return all(entry.get(key) == value for key, value in wanted.items())


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"--adopt {path.parent}: {path.name} cannot be read ({error})") from None
    if not isinstance(found, dict):
        raise UserError(f"--adopt {path.parent}: {path.name} is not a result of `latentalign reproduce`")
    return found
