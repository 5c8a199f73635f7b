"""Starting and continuing runs: the folder, the task's files in it, and the data."""

import errno
import filecmp
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from latentalign.errors import UserError
from latentalign.files import discard, write_atomic
from latentalign.training.recipe.recipes import Recipe
from latentalign.training.run.checkpoints import FOLDER as CHECKPOINTS
from latentalign.training.run.checkpoints import NAME as CHECKPOINT_NAME
from latentalign.training.run.config_file import CONFIG, save_config
from latentalign.training.run.environment import describe_environment
from latentalign.training.run.lock import LOCK, hold, is_held
from latentalign.training.run.marker import MARKER, Marker, mark, read_marker
from latentalign.training.run.weights import MODEL

LOGS = "logs"

# what the trainer writes; everything else in a run folder is the task's
OWN = {CONFIG, MODEL, MARKER, LOCK, "metrics.jsonl", "log.txt", "environment.json", CHECKPOINTS, LOGS}
_OWN_INSIDE = re.compile(
    rf"{CHECKPOINTS}/({CHECKPOINT_NAME.pattern}(\.damaged)?|\.step-.*\.part)"
    rf"|{LOGS}/(tensorboard|csv)/version_\d+/(events\.out\..*|hparams\.yaml|metrics\.csv)"
)


def check_free(folder: Path, *, overwrite: bool) -> None:
    """Refuse to train into a folder that has something in it, unless it is a run that may be replaced."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--out {folder}: expected a folder, found a file")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not overwrite:
        raise UserError(
            f"--out {folder}: the folder exists; choose another, go on with --resume {folder}, or replace it with "
            "--overwrite"
        )
    if read_marker(folder) is None:
        raise UserError(
            f"--overwrite: {folder} is not a run folder (it has no {MARKER}); it is left as it is: "
            "choose another --out, or remove it yourself"
        )


def begin(
    recipe: Recipe,
    folder: Path,
    *,
    overwrite: bool,
    trial: Callable[[Any], None],
    log: Callable[[str], None],
    world_size: int,
    stack: ExitStack,
) -> Any:
    """Prepare the data and make the run folder, complete or not at all; what `prepare` found comes back.

    A mistake in the recipe or the data leaves nothing behind, and an older run in its place untouched. The stack
    holds the lock of the new folder.
    """
    shown, folder = folder, Path(os.path.realpath(folder))  # a link stays one
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        check_free(folder, overwrite=overwrite)
        draft = _beside(folder, ".part")
    except OSError as error:
        raise UserError(f"--out {shown}: cannot be made ({error.strerror}); choose another folder") from None
    try:
        with ExitStack() as old:
            replaces = folder.is_dir() and any(folder.iterdir())
            if replaces:
                old.enter_context(hold(folder))
            stack.enter_context(hold(draft))
            prepared = recipe.prepare(draft, log)
            trial(prepared)
            mark(draft, recipe.resolved(), prepared)
            save_config(recipe, draft)
            facts = describe_environment(recipe.seed, world_size)
            write_atomic(draft / "environment.json", json.dumps([facts], indent=2) + "\n")
            draft.chmod(0o755)
            if replaces:
                _replace(folder, draft)
            else:
                _appear(folder, draft)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return prepared


def _appear(folder: Path, draft: Path) -> None:
    """Give the draft its name, unless another process was faster."""
    try:
        os.rename(draft, folder)  # an empty folder may be there
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise UserError(
            f"--out {folder}: another process has begun a run there in the meantime; it is left as it is"
        ) from None


def _replace(folder: Path, draft: Path) -> None:
    """Put the draft in the place of an older run; what is not of that run moves into the new one."""
    check_free(folder, overwrite=True)  # it was a run before the data were read, and has to be one still
    aside = _beside(folder, ".old")
    os.rename(folder, aside / folder.name)
    os.rename(draft, folder)
    _discard(aside, folder)


def _discard(aside: Path, folder: Path) -> None:
    """Remove an older run that was set aside; files that training did not write go to the run in its place."""
    old = aside / folder.name
    marker = read_marker(old) if old.is_dir() else None
    discard(old, folder, lambda name: _is_of_training(name, marker), last=MARKER)
    if aside.is_dir():
        aside.rmdir()


def _is_of_training(name: Path, marker: Marker | None) -> bool:
    text = str(name)
    if marker is None:
        return text == MARKER
    return text in OWN or text in marker.files or bool(_OWN_INSIDE.fullmatch(text))


def _beside(folder: Path, suffix: str) -> Path:
    """A hidden folder beside the run that carries the number of this process."""
    return Path(
        tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name[:100]}.{os.getpid()}.", suffix=suffix)
    )


def _sweep(folder: Path) -> None:
    """Clear up what processes that were killed here left beside the run: drafts go, a run set aside comes back."""
    pattern = re.compile(rf"\.{re.escape(folder.name[:100])}\.(\d+)\.\w+\.(part|old)")
    for path in folder.parent.iterdir():
        match = pattern.fullmatch(path.name)
        if match is None or Path(f"/proc/{match[1]}").exists() or not Path("/proc/self").exists():
            continue
        if is_held(path):  # by a process of another machine
            continue
        if match[2] == "part":
            shutil.rmtree(path, ignore_errors=True)
        elif not folder.exists() and (path / folder.name).is_dir():
            os.rename(path / folder.name, folder)
            path.rmdir()
        elif read_marker(folder) is not None:
            _discard(path, folder)


@contextmanager
def prepare_again(recipe: Recipe, folder: Path, log: Callable[[str], None]) -> Iterator[Any]:
    """Prepare the data of a run that exists, in a scratch copy of its files; they must come out the same."""
    with tempfile.TemporaryDirectory(prefix="latentalign-") as scratch:
        copy = Path(scratch)
        for name in _files_of_the_task(folder):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(folder / name, copy / name)
        prepared = recipe.prepare(copy, log)
        for path in sorted(copy.rglob("*")):
            original = folder / path.relative_to(copy)
            if path.is_file() and original.is_file() and not filecmp.cmp(path, original, shallow=False):
                raise UserError(
                    f"{folder}: {path.relative_to(copy)} would come out differently now; the data changed since the "
                    "run began, so it cannot be resumed"
                )
        yield prepared


def _files_of_the_task(folder: Path) -> list[str]:
    marker = read_marker(folder)
    if marker is not None:
        return list(marker.files)
    # a run of an earlier version: whatever is not the trainer's
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return [str(name) for name in found if name.parts[0] not in OWN and not name.parts[0].startswith(".")]
