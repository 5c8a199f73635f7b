"""Reading parallel text and turning it into flat arrays of pieces, with an account of what was left out."""

import json
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from pathlib import Path

import numpy as np

from latentalign.errors import UserError
from latentalign.files import read_lines
from latentalign.text.links import read_links
from latentalign.text.parallel import Pair, read_parallel
from latentalign.translation.config import DataConfig, PairFiles, listed
from latentalign.translation.data.assets import TranslationAssets
from latentalign.translation.data.piece_links import PieceLinks, read_piece_links
from latentalign.translation.data.tags import tagged
from latentalign.translation.data.tokenizer import END, UNKNOWN


@dataclass
class CorpusReport:
    """What was read, kept and dropped, and why."""

    name: str
    read: int = 0
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)  # pieces never seen in training, by side

    def drop(self, reason: str) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    def __str__(self) -> str:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(self.dropped.items()))
        dropped = f"dropped {sum(self.dropped.values())} ({reasons})" if reasons else "dropped none"
        unknown = "".join(f"; {count} {side} pieces are unknown" for side, count in self.unknown.items())
        return f"{self.name}: read {self.read} pairs, kept {self.kept}, {dropped}{unknown}"


@dataclass(frozen=True)
class Sequences:
    """Many sequences of pieces in one flat array, in memory or mapped from a file."""

    tokens: np.ndarray  # [sum of lengths] int32
    offsets: np.ndarray  # [N+1] int64

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)


@dataclass(frozen=True)
class Corpus:
    """Tokenised pairs: sources as the encoder reads them, targets as predicted, end mark included."""

    source: Sequences
    target: Sequences
    lines: np.ndarray  # [N] int64, line numbers from 1 in what was read
    report: CorpusReport
    links: PieceLinks | None = None  # of an external posterior

    def __len__(self) -> int:
        return len(self.source)


def read_pairs(files: PairFiles, path: Callable[[str], Path] = Path) -> Iterator[Pair]:
    """Yield the sentence pairs of parallel files or of a table; nothing is left out."""
    tags: Iterable[str | None] = repeat(None) if files.tags is None else files.tags
    for pairs, tag in zip(_each_file(files, path), tags, strict=False):
        yield from pairs if tag is None else ((tagged(source, tag), target) for source, target in pairs)


def _each_file(files: PairFiles, path: Callable[[str], Path]) -> Iterator[Iterator[Pair]]:
    if files.table is not None:
        assert files.source_column is not None
        assert files.target_column is not None
        for name in listed(files.table):
            yield _read_table(path(name), files.source_column, files.target_column)
        return
    sources, targets = listed(files.source), listed(files.target)
    if len(sources) != len(targets):
        raise UserError(
            f"data: {len(sources)} source files but {len(targets)} target files; give one for one"
        )
    for source, target in zip(sources, targets, strict=True):
        yield read_parallel(path(source), path(target))


def name_of(files: PairFiles) -> str:
    """A short name of where pairs come from, for messages."""
    if files.table is not None:
        return ", ".join(listed(files.table))
    return f"{', '.join(listed(files.source))} and {', '.join(listed(files.target))}"


def _read_table(path: Path, source_column: str | int, target_column: str | int) -> Iterator[Pair]:
    name = path.name.removesuffix(".gz")
    if isinstance(source_column, int) or isinstance(target_column, int):
        yield from _read_numbered(path, int(source_column), int(target_column))
    elif name.endswith((".jsonl", ".json")):
        yield from _read_json_lines(path, source_column, target_column)
    elif name.endswith((".tsv", ".txt")):
        yield from _read_tsv(path, source_column, target_column)
    else:
        raise UserError(f"{path}: expected a table named .tsv or .jsonl (or .gz of one)")


def _read_tsv(path: Path, source_column: str, target_column: str) -> Iterator[Pair]:
    lines = read_lines(path)
    header = next(lines, "").split("\t")
    for column in (source_column, target_column):
        if column not in header:
            raise UserError(f"{path}: no column {column!r} in its first line; found {', '.join(header)}")
    source, target = header.index(source_column), header.index(target_column)
    for number, line in enumerate(lines, start=2):
        cells = line.split("\t")
        if len(cells) != len(header):
            raise UserError(f"{path}, line {number}: expected {len(header)} columns, found {len(cells)}")
        yield cells[source], cells[target]


def _read_numbered(path: Path, source: int, target: int) -> Iterator[Pair]:
    """A table without a header line: every line has as many cells as the first, and no word is empty."""
    expected = 0
    for number, line in enumerate(read_lines(path), start=1):
        cells = line.split("\t")
        expected = expected or max(len(cells), source, target)
        if len(cells) != expected:
            raise UserError(f"{path}, line {number}: expected {expected} columns, found {len(cells)}")
        for column in (source, target):
            if not cells[column - 1].strip():
                raise UserError(f"{path}, line {number}: column {column} is empty; expected a word")
        yield cells[source - 1], cells[target - 1]


def _read_json_lines(path: Path, source_column: str, target_column: str) -> Iterator[Pair]:
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            raise UserError(f"{path}, line {number}: expected a JSON object") from None
        yield _cell(record, source_column, path, number), _cell(record, target_column, path, number)


def _cell(record: object, column: str, path: Path, number: int) -> str:
    cell = record.get(column) if isinstance(record, dict) else None
    if not isinstance(cell, str):
        raise UserError(f"{path}, line {number}: expected a JSON object with text under {column!r}")
    try:
        cell.encode("utf-8")
    except UnicodeEncodeError as error:
        found = ascii(cell[error.start])
        raise UserError(
            f"{path}, line {number}: expected text under {column!r}, found {found}, which is half of a character"
        ) from None
    return cell


@dataclass(frozen=True)
class PairFilter:
    """Which pairs are left out, and why. Lengths are counted in pieces, without the end mark."""

    max_length: int | None = None
    max_ratio: float | None = None

    @classmethod
    def of(cls, config: DataConfig) -> "PairFilter":
        return cls(max_length=config.max_length, max_ratio=config.max_ratio)

    def reason(self, source: int, target: int) -> str | None:
        """Why a pair of these lengths is dropped; None if it is kept."""
        if source == 0 or target == 0:
            return "with an empty side"
        if self.max_length is not None and max(source, target) > self.max_length:
            return f"over {self.max_length} pieces"
        if self.max_ratio is not None and max(source, target) > self.max_ratio * min(source, target):
            return f"over a length ratio of {self.max_ratio:g}"
        return None


def encode_pairs(
    pairs: Iterator[Pair], assets: TranslationAssets, *, keep: PairFilter, report: CorpusReport
) -> Iterator[tuple[int, list[int], list[int]]]:
    """Yield (line, source, target) of the pairs that are kept, counting the others into `report`."""
    encode_source, encode_target = assets.source_pieces, assets.target.encode
    for line, (left, right) in enumerate(pairs, start=1):
        report.read += 1
        source, target = encode_source(left), encode_target(right)
        reason = keep.reason(len(source), len(target))
        if reason is not None:
            report.drop(reason)
            continue
        if assets.source_end:
            source.append(END)
        target.append(END)
        report.kept += 1
        for side, pieces in (("source", source), ("target", target)):
            if unknown := pieces.count(UNKNOWN):
                report.unknown[side] = report.unknown.get(side, 0) + unknown
        yield line, source, target


def build_corpus(pairs: Iterator[Pair], assets: TranslationAssets, *, keep: PairFilter, name: str) -> Corpus:
    """Tokenise pairs into memory."""
    report = CorpusReport(name)
    sides = (array("i"), array("i"))
    offsets = (array("q", [0]), array("q", [0]))
    lines = array("q")
    for line, *pair in encode_pairs(pairs, assets, keep=keep, report=report):
        lines.append(line)
        for tokens, offset, sequence in zip(sides, offsets, pair, strict=True):
            tokens.extend(sequence)
            offset.append(len(tokens))
    require_pairs(report)
    source, target = (
        Sequences(np.frombuffer(tokens, dtype=np.int32), np.frombuffer(offset, dtype=np.int64))
        for tokens, offset in zip(sides, offsets, strict=True)
    )
    return Corpus(source, target, np.frombuffer(lines, dtype=np.int64), report)


def with_links(corpus: Corpus, files: PairFiles, data: DataConfig, assets: TranslationAssets) -> Corpus:
    """The same corpus with the links of its pairs, if there is a file of them."""
    if files.links is None:
        return corpus
    paths = [data.path(name) for name in listed(files.links)]
    found = chain.from_iterable(map(read_links, paths))
    links = read_piece_links(read_pairs(files, data.path), found, assets, corpus.lines, paths[-1])
    return replace(corpus, links=links)


def require_pairs(report: CorpusReport) -> None:
    """Refuse a corpus of which nothing is left."""
    if report.kept == 0:
        raise UserError(f"{report}; nothing is left to work with: check the files and data.max_length")
