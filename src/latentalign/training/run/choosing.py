"""Which recipe is trained into which folder; nothing here needs torch, so that a mistake is found at once."""

from pathlib import Path

from latentalign.errors import UserError
from latentalign.training.recipe.overrides import Overrides
from latentalign.training.recipe.recipes import Recipe, find_recipe, load_recipe
from latentalign.training.run.config_file import load_resumed


def choose_run(
    recipe: str | Path | None,
    *,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    settings: Overrides = (),
    overwrite: bool = False,
) -> tuple[Recipe, Path]:
    """The recipe to train and the folder to train it into."""
    if resume is None:
        if recipe is None:
            raise UserError("train: expected a recipe or --resume RUN; see latentalign train --help")
        return load_recipe(recipe, settings), Path(out or Path("runs") / find_recipe(recipe).stem)
    folder = Path(resume)
    if overwrite:
        raise UserError(
            "--resume and --overwrite: choose one; --resume goes on with the run, --overwrite replaces it"
        )
    if out is not None and Path(out).resolve() != folder.resolve():
        raise UserError(f"--out {out} and --resume {resume}: a run is resumed in its own folder; drop --out")
    given = load_recipe(recipe, settings) if recipe is not None else None
    begun = folder.is_dir() and any(folder.iterdir())
    if given is not None and not begun:
        return given, folder
    return load_resumed(folder, settings, given), folder
