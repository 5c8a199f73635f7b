"""Word links: Pharaoh text and the alignment error rate.

A link (i, j) joins source word i with target word j, both counted from 0. In a file every line holds the
links of one pair: ``0-0 2-1`` (sure), ``3?2`` or ``3p2`` (possible), ``0-0:0.93`` (with a probability);
what follows a tab (our sentence score) is not read.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from latentalign.alignment.metrics import AlignmentError, alignment_error_rate
from latentalign.errors import UserError
from latentalign.files import read_lines

Link = tuple[int, int]
_LINK = re.compile(r"(\d+)([-?p])(\d+)(?::([0-9.eE+-]+))?")


@dataclass(frozen=True)
class Links:
    """The links of one pair; `possible` holds the merely possible ones, `probs` what is known of each."""

    sure: frozenset[Link]
    possible: frozenset[Link] = frozenset()
    probs: Mapping[Link, float] | None = None

    @property
    def all(self) -> frozenset[Link]:
        return self.sure | self.possible


def parse_links(line: str, *, place: str) -> Links:
    """Read a line of Pharaoh links; `place` (file and line) goes into the error."""
    sure: set[Link] = set()
    possible: set[Link] = set()
    probs: dict[Link, float] = {}
    for item in line.split("\t", 1)[0].split():
        match = _LINK.fullmatch(item)
        if match is None:
            raise UserError(
                f"{place}: expected links such as 0-0 or 3?2, got {item!r}; check the file's format"
            )
        link = (int(match[1]), int(match[3]))
        (sure if match[2] == "-" else possible).add(link)
        if match[4] is not None:
            probs[link] = _probability(match[4], place)
    return Links(frozenset(sure), frozenset(possible - sure), probs or None)


def _probability(text: str, place: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise UserError(f"{place}: expected a probability between 0 and 1 after the colon, got {text!r}")
    return value


def format_links(links: Iterable[Link], *, probs: Mapping[Link, float] | None = None) -> str:
    """Pharaoh text, in the order of the source words; with `probs` as ``i-j:0.93``."""
    if probs is None:
        return " ".join(f"{i}-{j}" for i, j in sorted(links))
    return " ".join(f"{i}-{j}:{_short(probs[i, j])}" for i, j in sorted(links))


def _short(probability: float) -> str:
    # two digits read well; what would round to 0.00 keeps its first digits
    return f"{probability:.2f}" if probability >= 0.01 else f"{probability:.1e}"


def read_links(path: str | Path) -> Iterator[Links]:
    """The links of a file, line by line."""
    for number, line in enumerate(read_lines(path), start=1):
        yield parse_links(line, place=f"{path}, line {number}")


def check_links(links: Links, source_words: int, target_words: int, *, place: str) -> None:
    """Refuse a link that points outside its sentences."""
    for i, j in sorted(links.all):
        if i >= source_words or j >= target_words:
            raise UserError(
                f"{place}: link {i}-{j} does not fit a pair of {source_words} source and {target_words} "
                f"target words (counted from 0); check that the files belong together"
            )


def score_links(predicted: Iterable[Links], gold: Iterable[Links]) -> AlignmentError:
    """Alignment error rate over as many pairs; a predicted link counts whatever its mark."""
    found, known = list(predicted), list(gold)
    return alignment_error_rate(
        [links.all for links in found], [links.sure for links in known], [links.possible for links in known]
    )
