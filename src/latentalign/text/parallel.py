"""Reading two files of sentences that belong together, line for line."""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from latentalign.errors import UserError
from latentalign.files import read_lines

Pair = tuple[str, str]


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
