"""Where a result comes from: the recipe it was trained by, as it was then, and the revision of the code.

A row of a result has `recipe` (a name), `settings` and `changes` (differences from it), `revision` and `fingerprint`.
The fingerprint is the hash of the resolved recipe; `recipes.json` beside the result has the recipe itself. So it can be
told later whether the recipe of that name still says the same:

    python -m latentalign.reports.provenance docs/results
"""

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentalign.errors import UserError
from latentalign.files import to_json, write_atomic
from latentalign.reports.grid.fingerprint import WITHOUT_EFFECT
from latentalign.training.recipe.overrides import apply_settings, merge
from latentalign.training.recipe.recipes import Recipe, build_recipe, find_recipe, read_recipe
from latentalign.training.run.config_file import build_stored_recipe, load_config

RECIPES = "recipes.json"  # fingerprint -> recipe, in the folder of a result
Values = dict[str, Any]


def recipe_values(recipe: Recipe) -> Values:
    """The resolved recipe without the seed, and without what says where or how fast training is done."""
    values = recipe.resolved()
    data = {
        key: "." if key == "folder" else value for key, value in values["data"].items() if key != "prepared"
    }
    training = {
        key: value
        for key, value in values["training"].items()
        if key == "epochs" or key not in WITHOUT_EFFECT
    }
    return {**{key: values[key] for key in values if key != "seed"}, "data": data, "training": training}


def fingerprint_of(values: Mapping[str, Any]) -> str:
    """The hash of such values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def write_recipes(folder: Path, recipes: list[Values]) -> None:
    """Keep the recipes of some results beside them, with those that are there already."""
    path = folder / RECIPES
    known: dict[str, Values] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    known |= {fingerprint_of(values): values for values in recipes}
    lines = ",\n".join(f" {to_json(key)}: {to_json(values)}" for key, values in sorted(known.items()))
    write_atomic(path, f"{{\n{lines}\n}}\n")


def revision_of_run(folder: Path) -> str | None:
    """The commit that a run was trained with, when it was last started."""
    try:
        sessions = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
        found: str | None = sessions[-1].get("git_revision")
        return found
    except (OSError, ValueError, IndexError):
        return None


def provenance_of_run(folder: Path) -> tuple[dict[str, Any], Values]:
    """What a row says of its run (`fingerprint`, `revision`), and the recipe for `write_recipes`."""
    values = recipe_values(load_config(folder))
    return {"fingerprint": fingerprint_of(values), "revision": revision_of_run(folder)}, values


@dataclass(frozen=True)
class Checked:
    """A row of a result, and why it is not by today's recipe (nothing if it is)."""

    file: Path
    name: str
    recipe: str
    revision: str
    differs: tuple[str, ...]

    @property
    def is_current(self) -> bool:
        return not self.differs


def check_results(folder: Path) -> Iterator[Checked]:
    """Every row below the folder that names a recipe."""
    for path in sorted(folder.rglob("*.json")):
        if path.name == RECIPES:
            continue
        content = json.loads(path.read_text(encoding="utf-8"))
        for row in _rows(content):
            name = str(row.get("row") or row.get("model") or row["recipe"])
            revision = str(row.get("revision") or "unknown")
            yield Checked(path, name, row["recipe"], revision, tuple(_differences(path.parent, row)))


def _rows(content: Any) -> Iterator[Mapping[str, Any]]:
    """Entries of the lists at the top of a result that say which recipe they are by."""
    for value in content.values() if isinstance(content, dict) else ():
        if isinstance(value, list):
            yield from (row for row in value if isinstance(row, dict) and isinstance(row.get("recipe"), str))


def _differences(folder: Path, row: Mapping[str, Any]) -> Iterator[str]:
    """Settings that today's recipe has otherwise than the one of the row."""
    path = folder / RECIPES
    known: dict[str, Values] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    values = known.get(row.get("fingerprint") or "")
    if values is None:
        yield "its recipe is not known"
        return
    try:
        today = recipe_values(_today(row))
        # settings that are new since then have their defaults in both
        then = recipe_values(build_stored_recipe({**values, "seed": 1}, place=str(path)))
    except UserError as error:
        yield f"the recipe can no longer be read: {error}"
        return
    yield from _differing(then, today)


def _today(row: Mapping[str, Any]) -> Recipe:
    """The recipe that a row would be trained by now."""
    base = apply_settings(read_recipe(find_recipe(row["recipe"])), row.get("settings", []))
    return build_recipe(merge(base, row.get("changes", {})), place=row["recipe"])


def _differing(then: Any, today: Any, place: str = "") -> Iterator[str]:
    if isinstance(then, dict) and isinstance(today, dict):
        for key in {**then, **today}:
            yield from _differing(then.get(key), today.get(key), f"{place}.{key}" if place else key)
    elif then != today:
        yield f"{place}: {to_json(then)}, now {to_json(today)}"


def main(folder: Path) -> None:
    """Print a line for every row: current, or by an earlier revision and what has changed."""
    for found in check_results(folder):
        verdict = "current" if found.is_current else f"of revision {found.revision[:10]}"
        line = f"{found.file.relative_to(folder)}: {found.name} ({found.recipe}): {verdict}"
        sys.stdout.write("; ".join([line, *found.differs]) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
