"""`run.json`: the file that makes a folder a run. It says what the run's parts and data were when it began.

Weights mean nothing without the files they were trained with: a vocabulary in another order translates every word into
another one, without any error. So each part has a checksum. Folders of earlier versions have no such file; they load,
unchecked, but are not replaced by `--overwrite`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from latentalign.errors import UserError
from latentalign.files import digest, read_json, sha256_of, write_atomic

MARKER = "run.json"
_FORMAT = 1


@dataclass(frozen=True)
class Marker:
    """What belongs together."""

    files: Mapping[str, str]  # what the task wrote into the folder, by SHA-256
    model: Mapping[str, Any]  # the recipe's task and model as they were: what the weights mean
    data: str  # of the examples that are trained and validated on

    @property
    def parts(self) -> str:
        """Of everything that weights need; they carry it, so that those of another run are recognised."""
        return digest(json.dumps([self.files, self.model], sort_keys=True))


def mark(folder: Path, resolved: Mapping[str, Any], prepared: Any) -> Marker:
    """Make a folder a run: everything that is in it now was written by the task."""
    files = {
        str(path.relative_to(folder)): sha256_of(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }
    return _write(folder, Marker(files, _meaning(resolved), _digest_of_data(prepared)))


def remark(folder: Path, resolved: Mapping[str, Any]) -> Marker:
    """Say that the weights of a run mean another model now: for those who have changed them accordingly."""
    marker = read_marker(folder)
    assert marker is not None
    return _write(folder, replace(marker, model=_meaning(resolved)))


def _meaning(resolved: Mapping[str, Any]) -> dict[str, Any]:
    return {name: resolved[name] for name in ("task", "model")}


def _write(folder: Path, marker: Marker) -> Marker:
    write_atomic(folder / MARKER, json.dumps({"format": _FORMAT, **asdict(marker)}, indent=1) + "\n")
    return marker


def read_marker(folder: Path) -> Marker | None:
    """The marker of a run; None for a folder that has none."""
    path = folder / MARKER
    if not path.exists():
        return None
    content = read_json(path, "what training wrote; copy the run folder again")
    if not isinstance(content, dict) or not isinstance(content.get("format"), int):
        raise _damaged(path)
    if content.pop("format") > _FORMAT:
        raise UserError(f"{folder}: written by a newer version of latentalign; install that one")
    try:
        marker = Marker(**content)
    except TypeError:
        raise _damaged(path) from None
    kinds = ((marker.files, dict), (marker.model, dict), (marker.data, str))
    names = marker.files.items() if isinstance(marker.files, dict) else ()
    if not all(isinstance(value, kind) for value, kind in (*kinds, *((one, str) for one in chain(*names)))):
        raise _damaged(path)
    return marker


def _damaged(path: Path) -> UserError:
    return UserError(f"{path}: damaged; copy the run folder again")


def verify_parts(folder: Path, marker: Marker, resolved: Mapping[str, Any]) -> None:
    """Refuse a run folder whose files are not those that its weights were trained with."""
    for name, expected in marker.files.items():
        path = folder / name
        if not path.is_file():
            raise UserError(f"{folder}: the run folder is not complete, {name} is missing; copy it again")
        if sha256_of(path) != expected:
            raise UserError(
                f"{path}: not the file that the run was trained with (its checksum differs); "
                "copy the run folder again"
            )
    if (changed := _first_change(marker.model, resolved)) is not None:
        raise UserError(
            f"{folder}: config.yaml describes another model than the run was trained with ({changed}); "
            "undo the change, or train a run of its own"
        )


def verify_data(folder: Path, marker: Marker, prepared: Any) -> None:
    """Refuse to go on with other data than a run began with."""
    if _digest_of_data(prepared) != marker.data:
        raise UserError(
            f"{folder}: the training or validation data changed since the run began, so it cannot be resumed; "
            "put the old files back, or train a new run"
        )


def _first_change(before: Any, now: Any, place: str = "") -> str | None:
    """Where a recorded value is another one now; settings that are new since have their defaults, as before."""
    if isinstance(before, dict) and isinstance(now, dict):
        changes = (
            _first_change(value, now.get(key), f"{place}.{key}" if place else key)
            for key, value in before.items()
        )
        return next((change for change in changes if change is not None), None)
    return None if before == now else f"{place} was {before!r} and is {now!r}"


def _digest_of_data(prepared: Any) -> str:
    return digest(prepared.train.fingerprint(), prepared.valid.fingerprint())
