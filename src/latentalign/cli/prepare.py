"""`prepare`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from latentalign.cli.progress import progress
from latentalign.errors import UserError
from latentalign.files import require_free


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
        bool, typer.Option("--overwrite", help="Write once more into a folder that was prepared before.")
    ] = False,
) -> None:
    """Convert a recipe's data once into memory-mapped files, so that training starts at once and needs less memory."""
    from latentalign.task import CanConvert
    from latentalign.training.recipe.recipes import load_recipe

    loaded = load_recipe(recipe, settings or [])
    task = loaded.task
    if not isinstance(task, CanConvert):
        raise UserError(f"prepare: task {task.name!r} has nothing to convert; train from its files directly")
    require_free(to, marker=task.prepared_marker(loaded.data), overwrite=overwrite, option="--to")
    with progress("preparing"):
        task.prepare_files(
            loaded.data,
            loaded.model,
            to=to,
            seed=loaded.seed,
            log=lambda message: print(message, file=sys.stderr),
        )
    print(to)
