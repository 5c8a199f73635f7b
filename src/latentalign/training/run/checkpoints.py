"""Checkpoints: whole or not at all, verified, never unpickled.

A checkpoint is a plain torch file whose name carries its step and the beginning of its SHA-256: a rename makes file
and checksum appear at once. Loading reads tensors and plain values only.
"""

import hashlib
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io.checkpoint_io import CheckpointIO

from latentalign.files import sha256_of, write_atomic

FOLDER = "checkpoints"
NAME = re.compile(r"step-(\d{9})-([0-9a-f]{16})\.ckpt")


class DamagedCheckpoint(Exception):
    """A checkpoint whose content is not what was written."""


class VerifiedCheckpoints(CheckpointIO):
    """How lightning writes and reads checkpoints: `step-000000120.ckpt` becomes `step-000000120-<checksum>.ckpt`."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        # serialised in memory first: torch's own file writer may abort the process when the disk is full
        buffer = io.BytesIO()
        torch.save(checkpoint, buffer)
        content = buffer.getbuffer()
        path = Path(path)
        digest = hashlib.sha256(content).hexdigest()[:16]
        write_atomic(path.with_name(f"{path.stem}-{digest}.ckpt"), bytes(content))

    def load_checkpoint(
        self, path: str | Path, map_location: Any | None = "cpu", weights_only: bool | None = True
    ) -> dict[str, Any]:
        return load_checkpoint(Path(path))

    def remove_checkpoint(self, path: str | Path) -> None:
        Path(path).unlink(missing_ok=True)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Verify and read a checkpoint; nothing in it is executed."""
    match = NAME.fullmatch(path.name)
    if match is None:
        raise DamagedCheckpoint("its name carries no checksum")
    try:
        digest = sha256_of(path)
    except OSError as error:
        raise DamagedCheckpoint(f"it cannot be read ({error.strerror})") from None
    if digest[:16] != match[2]:
        raise DamagedCheckpoint("its checksum does not fit its content")
    try:
        loaded: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # whatever the reader says about a file that is no honest checkpoint, it is not loaded
        raise DamagedCheckpoint(f"it is not a checkpoint of tensors ({type(error).__name__})") from None
    if not isinstance(loaded, dict) or "place" not in loaded or "learning" not in loaded:
        raise DamagedCheckpoint("it is not a checkpoint of latentalign")
    return loaded


def list_checkpoints(run: Path) -> list[tuple[int, Path]]:
    """(step, path) of the run's checkpoints, newest first."""
    found = []
    for path in (run / FOLDER).glob("*.ckpt"):
        if match := NAME.fullmatch(path.name):
            found.append((int(match[1]), path))
    return sorted(found, key=lambda item: (item[0], item[1].stat().st_mtime), reverse=True)


def newest_good(run: Path, warn: Callable[[str], None]) -> tuple[Path, dict[str, Any]] | None:
    """The newest checkpoint that can be read, with its content; damaged ones are named and skipped."""
    for _, path in list_checkpoints(run):
        try:
            return path, load_checkpoint(path)
        except DamagedCheckpoint as error:
            warn(f"checkpoint {path.name} is damaged: {error}; it is skipped and the one before it is tried")
    return None


def set_aside_after(run: Path, good: Path | None) -> None:
    """Rename checkpoints that are newer than the good one, so that they do not count as the newest any more."""
    for _, path in list_checkpoints(run):
        if path == good:
            return
        path.rename(path.with_name(f"{path.name}.damaged"))


def checkpoint_path(run: Path, step: int) -> Path:
    """The path given to lightning; `VerifiedCheckpoints` adds the checksum to the name."""
    return run / FOLDER / f"step-{step:09d}.ckpt"


def prune(run: Path, *, keep: int, kept_step: int) -> None:
    """Remove all but the newest few and the one whose weights the run has, and what killed writers left behind."""
    for number, (step, path) in enumerate(list_checkpoints(run)):
        if number >= keep and step != kept_step:
            path.unlink(missing_ok=True)
    for leftover in (run / FOLDER).glob(".step-*.part"):
        leftover.unlink(missing_ok=True)
