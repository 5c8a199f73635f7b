"""`train` and `check`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from latentalign.errors import UserError
from latentalign.files import to_json

RecipeArgument = Annotated[
    str | None, typer.Argument(metavar="RECIPE", help="A YAML file, or the name of a packaged recipe.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a value: --set training.epochs=3"),
]


def train(
    recipe: RecipeArgument = None,
    out: Annotated[Path | None, typer.Option(help="The run folder; default runs/RECIPE.")] = None,
    settings: SetOption = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with this run from its newest checkpoint.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that exists.")] = False,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Refuse operations that may differ between two runs.")
    ] = False,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print the summary as one JSON object.")
    ] = False,
) -> None:
    """Train a model from a recipe into a run folder, or go on with a run."""
    from latentalign.training.run.choosing import choose_run

    changes = [*(settings or []), *(["training.deterministic=true"] if deterministic else [])]
    loaded, folder = choose_run(recipe, out=out, resume=resume, settings=changes, overwrite=overwrite)
    # after the recipe was read: a mistake in it should not wait for torch
    from latentalign.training.loop.allocator import keep_freed_memory
    from latentalign.training.train import train as fit

    keep_freed_memory()
    trained = fit(loaded, folder, resume=resume is not None, overwrite=overwrite)
    if trained.is_first:
        _print(trained.summary(), as_json=json_output)


def check(recipe: RecipeArgument = None, settings: SetOption = None) -> None:
    """Check a recipe and its data without training: read everything, build the model, try one batch a phase."""
    from latentalign.training.recipe.recipes import load_recipe

    if recipe is None:
        raise UserError("check: expected a recipe; give a YAML file or the name of a packaged recipe")
    loaded = load_recipe(recipe, settings or [])
    from latentalign.training.check import check_recipe  # after the recipe was read: it imports torch

    for line in check_recipe(loaded):
        print(line)


def _print(summary: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(to_json(summary))
    else:
        print(
            ", ".join(
                f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}"
                for name, value in summary.items()
            )
        )
