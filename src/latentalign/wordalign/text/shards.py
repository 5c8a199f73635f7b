"""A corpus in shards: some pairs at a time, in memory or on disk, worked on by one process or several."""

import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from latentalign.wordalign.estimation.expectation import Shard
from latentalign.wordalign.text.vocabulary import Units

WordPair = tuple[Units, Units]
Item = TypeVar("Item")


def grouped(items: Iterable[Item], most: int, size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Consecutive items of at most this size together; one that is larger is alone."""
    group: list[Item] = []
    total = 0
    for item in items:
        wanted = size(item)
        if group and total + wanted > most:
            yield group
            group, total = [], 0
        group.append(item)
        total += wanted
    if group:
        yield group


def cells(pair: WordPair) -> int:
    return len(pair[0]) * len(pair[1])


class ShardsOnDisk:
    """Shards in a temporary folder, one in memory at a time; `close` removes it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="latentalign-shards-"))
        self.count = 0

    def append(self, shard: Shard) -> None:
        with (self.folder / str(self.count)).open("wb") as stream:
            pickle.dump(shard, stream, protocol=pickle.HIGHEST_PROTOCOL)
        self.count += 1

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int, /) -> Shard:
        if not 0 <= number < self.count:
            raise IndexError(number)
        with (self.folder / str(number)).open("rb") as stream:
            shard: Shard = pickle.load(stream)
        return shard

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
