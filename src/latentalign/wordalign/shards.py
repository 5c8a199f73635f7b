"""A corpus in shards: some pairs at a time, in memory or on disk, worked on by one process or several."""

import pickle
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from latentalign.wordalign.expectation import Shard
from latentalign.wordalign.vocabulary import Words

WordPair = tuple[Words, Words]


def shard_pairs(pairs: Iterable[WordPair], cells: int) -> Iterator[list[WordPair]]:
    """Consecutive pairs with about `cells` cells together."""
    part: list[WordPair] = []
    size = 0
    for pair in pairs:
        wanted = len(pair[0]) * len(pair[1])
        if part and size + wanted > cells:
            yield part
            part, size = [], 0
        part.append(pair)
        size += wanted
    if part:
        yield part


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
