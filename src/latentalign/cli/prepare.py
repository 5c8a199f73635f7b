"""`prepare`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from latentalign.errors import UserError


def prepare(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A YAML file, or the name of a packaged recipe.")
    ],
    to: Annotated[Path, typer.Option(help="The folder to write; the recipe's `data.prepared` names it.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a value: --set data.max_length=80"),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Write into a folder that is not empty.")
    ] = False,
) -> None:
    """Convert a recipe's data once into memory-mapped files, so that training starts at once and needs less memory."""
    from latentalign.task import CanConvert
    from latentalign.training.recipe.recipes import load_recipe

    loaded = load_recipe(recipe, settings or [])
    task = loaded.task
    if not isinstance(task, CanConvert):
        raise UserError(f"prepare: task {task.name!r} has nothing to convert; train from its files directly")
    if not overwrite and to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise UserError(f"--to {to}: exists and is not an empty folder; choose another, or give --overwrite")
    task.prepare_files(
        loaded.data,
        loaded.model,
        to=to,
        seed=loaded.seed,
        log=lambda message: print(message, file=sys.stderr),
    )
    print(to)
