"""Starting and continuing runs: the folder, the task's files in it, and the data."""

import filecmp
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from latentalign.errors import UserError
from latentalign.files import write_atomic
from latentalign.training.recipe.recipes import Recipe
from latentalign.training.run.checkpoints import FOLDER as CHECKPOINTS
from latentalign.training.run.environment import describe_environment
from latentalign.training.run.loading import CONFIG, MODEL, save_config

LOGS = "logs"


# what the trainer writes; everything else in a run folder is the task's
OWN = {CONFIG, MODEL, "metrics.jsonl", "log.txt", "environment.json", CHECKPOINTS, LOGS}


def check_free(folder: Path, *, overwrite: bool) -> None:
    """Refuse to train into a folder that has something in it, unless it is a run that may be replaced."""
    if folder.is_file():
        raise UserError(f"--out {folder}: expected a folder, found a file")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not overwrite:
        raise UserError(
            f"--out {folder}: the folder exists; choose another, go on with --resume {folder}, or replace it with "
            "--overwrite"
        )
    if not (folder / CONFIG).is_file():
        raise UserError(
            f"--overwrite: {folder} is not a run folder (it has no {CONFIG}); it is left as it is"
        )


def begin(recipe: Recipe, folder: Path, *, log: Callable[[str], None], world_size: int) -> Any:
    """Prepare the data and make the run folder, complete or not at all; what `prepare` found comes back.

    A mistake in the recipe or the data leaves nothing behind, and an older run in its place untouched.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        draft = _beside(folder, ".part")
    except OSError as error:
        raise UserError(f"--out {folder}: cannot be made ({error.strerror}); choose another folder") from None
    try:
        prepared = prepare(recipe, draft, log)
        save_config(recipe, draft)
        facts = describe_environment(recipe.seed, world_size)
        write_atomic(draft / "environment.json", json.dumps([facts], indent=2) + "\n")
        draft.chmod(0o755)
        if folder.is_dir() and any(folder.iterdir()):
            old = _beside(folder, ".old")
            folder.rename(old / folder.name)
            draft.rename(folder)
            shutil.rmtree(old)
        else:
            if folder.is_dir():
                folder.rmdir()
            draft.rename(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return prepared


def _beside(folder: Path, suffix: str) -> Path:
    """A hidden folder beside the run that carries the number of this process."""
    return Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.{os.getpid()}.", suffix=suffix))


def _sweep(folder: Path) -> None:
    """Remove what processes that were killed here left beside the run."""
    pattern = re.compile(rf"\.{re.escape(folder.name)}\.(\d+)\.\w+\.(part|old)")
    for path in folder.parent.iterdir():
        match = pattern.fullmatch(path.name)
        if match and not Path(f"/proc/{match[1]}").exists() and Path("/proc/self").exists():
            shutil.rmtree(path, ignore_errors=True)


def prepare(recipe: Recipe, folder: Path, log: Callable[[str], None]) -> Any:
    """Let the task read its data."""
    return recipe.task.prepare(recipe.data, recipe.model, folder=folder, seed=recipe.seed, log=log)


@contextmanager
def prepare_again(recipe: Recipe, folder: Path, log: Callable[[str], None]) -> Iterator[Any]:
    """Prepare the data of a run that exists, in a scratch copy of its files; they must come out the same."""
    with tempfile.TemporaryDirectory(prefix="latentalign-") as scratch:
        copy = Path(scratch)
        for path in folder.iterdir():
            if path.name in OWN or path.name.startswith("."):
                continue
            if path.is_dir():
                shutil.copytree(path, copy / path.name)
            else:
                shutil.copy2(path, copy / path.name)
        prepared = prepare(recipe, copy, log)
        for path in sorted(copy.rglob("*")):
            original = folder / path.relative_to(copy)
            if path.is_file() and original.is_file() and not filecmp.cmp(path, original, shallow=False):
                raise UserError(
                    f"{folder}: {path.relative_to(copy)} would come out differently now; the data changed since the "
                    "run began, so it cannot be resumed"
                )
        yield prepared
