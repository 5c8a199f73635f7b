"""A corpus tokenised once and kept on disk: training maps it into memory and never reads the text again."""

import json
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from latentalign.errors import UserError
from latentalign.files import open_atomic, read_json, require_file, write_atomic
from latentalign.translation.data.assets import TranslationAssets
from latentalign.translation.data.corpus import (
    Corpus,
    CorpusReport,
    Pair,
    PairFilter,
    Sequences,
    encode_pairs,
    require_pairs,
)

_FLUSH = 1 << 20  # pieces kept in memory while writing
_SIDES = ("source", "target")
_TYPES = {"tokens": np.int32, "offsets": np.int64, "lines": np.int64}


def write_shard(
    folder: Path, split: str, *, pairs: Iterator[Pair], assets: TranslationAssets, keep: PairFilter, name: str
) -> CorpusReport:
    """Tokenise pairs into `folder` as they come; memory does not grow with the corpus."""
    report = CorpusReport(name)
    lines = array("q")
    totals = {"source": 0, "target": 0}
    offsets = {side: array("q", [0]) for side in totals}
    waiting = {side: array("i") for side in totals}
    with (
        open_atomic(_path(folder, split, "source", "tokens"), "wb") as source_file,
        open_atomic(_path(folder, split, "target", "tokens"), "wb") as target_file,
    ):
        files = {"source": source_file, "target": target_file}
        for line, source, target in encode_pairs(pairs, assets, keep=keep, report=report):
            lines.append(line)
            for side, sequence in (("source", source), ("target", target)):
                waiting[side].extend(sequence)
                totals[side] += len(sequence)
                offsets[side].append(totals[side])
                if len(waiting[side]) >= _FLUSH:
                    files[side].write(waiting[side].tobytes())
                    waiting[side] = array("i")
        require_pairs(report)
        for side, stream in files.items():
            stream.write(waiting[side].tobytes())
    for side, offset in offsets.items():
        write_atomic(_path(folder, split, side, "offsets"), offset.tobytes())
    write_atomic(folder / f"{split}.lines", lines.tobytes())
    described = {"name": name, "read": report.read, "kept": report.kept, "dropped": report.dropped}
    write_atomic(folder / f"{split}.json", json.dumps(described, indent=2) + "\n")
    return report


def prepared_files(folder: Path, splits: Iterable[str]) -> list[Path]:
    """Everything of a prepared folder that its pieces are read from."""
    arrays = [
        _path(folder, split, side, what)
        for split in splits
        for side in _SIDES
        for what in ("tokens", "offsets")
    ]
    return [*arrays, *(folder / f"{split}.{kind}" for split in splits for kind in ("lines", "json"))]


def read_shard(folder: Path, split: str) -> Corpus:
    """Map a prepared split into memory."""
    path = folder / f"{split}.json"
    try:
        described = read_json(path, "a folder written by `latentalign prepare`")
        report = CorpusReport(described["name"], described["read"], described["kept"], described["dropped"])
        sides = [
            Sequences(_map(_path(folder, split, side, "tokens")), _map(_path(folder, split, side, "offsets")))
            for side in _SIDES
        ]
        lines = _map(folder / f"{split}.lines")
    except FileNotFoundError as error:
        raise UserError(
            f"{error.filename}: missing; expected a folder written by `latentalign prepare`"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path}: damaged; run `latentalign prepare` again") from None
    for side in sides:
        if len(side) != report.kept or side.offsets[-1] != len(side.tokens):
            raise UserError(f"{path}: the arrays beside it do not fit; run `latentalign prepare` again")
    return Corpus(sides[0], sides[1], lines, report)


def _path(folder: Path, split: str, side: str, what: str) -> Path:
    return folder / f"{split}.{side}.{what}"


def _map(path: Path) -> np.ndarray:
    require_file(path, "a folder written by `latentalign prepare`")
    return np.memmap(path, dtype=_TYPES[path.suffix.removeprefix(".")], mode="r")
