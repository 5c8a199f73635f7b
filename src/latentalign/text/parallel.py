"""Reading two files of sentences that belong together, line for line."""

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path

from latentalign.errors import UserError
from latentalign.files import read_lines

Pair = tuple[str, str]


def check_pairs(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """The same pairs. A pair that was given in the place of a list of pairs is refused: its texts are no pairs."""
    for pair in pairs:
        if isinstance(pair, str):
            raise UserError(
                f"pairs: expected a list of (source, target), received the text {pair[:20]!r}; "
                "write [(source, target)]"
            )
        yield pair


def read_parallel(source: Path, target: Path) -> Iterator[Pair]:
    """Yield the pairs of two files of as many lines; nothing is left out."""
    for number, (left, right) in enumerate(zip_longest(read_lines(source), read_lines(target))):
        if left is None or right is None:
            rest = sum(1 for _ in read_lines(source if right is None else target))
            counts = (rest, number) if right is None else (number, rest)
            raise UserError(
                f"{source} has {counts[0]} lines but {target} has {counts[1]}; "
                "expected one line for one line in both files"
            )
        yield left, right
