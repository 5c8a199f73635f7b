"""E-steps by several processes. Shards and their order are those of one process, so the counts are the same."""

import pickle
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from pathlib import Path

import torch
import torch.multiprocessing

from latentalign.wordalign.estimation.counts import Counts
from latentalign.wordalign.estimation.expectation import Round, expected_counts
from latentalign.wordalign.estimation.model import Model
from latentalign.wordalign.text.shards import ShardsOnDisk


class InProcesses:
    """Shards on disk, each worked on by whichever process is free; results come in the order of the shards."""

    def __init__(self, shards: ShardsOnDisk, processes: int) -> None:
        self.shards = shards
        self.rounds = count()  # so that every model has a path of its own
        threads = max(1, torch.get_num_threads() // processes)
        self.pool = ProcessPoolExecutor(
            processes,
            mp_context=torch.multiprocessing.get_context("spawn"),
            initializer=torch.set_num_threads,
            initargs=(threads,),
        )

    def __len__(self) -> int:
        return len(self.shards)

    def expect(self, model: Model, step: Round) -> Iterator[Counts]:
        path = self.shards.folder / f"model-{next(self.rounds)}"
        path.write_bytes(pickle.dumps((model, step), protocol=pickle.HIGHEST_PROTOCOL))
        yield from self.pool.map(_expect, [path] * len(self), [self.shards] * len(self), range(len(self)))
        path.unlink()

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)


_loaded: dict[Path, tuple[Model, Round]] = {}


def _expect(path: Path, shards: ShardsOnDisk, number: int) -> Counts:
    if path not in _loaded:  # one model a round
        _loaded.clear()
        _loaded[path] = pickle.loads(path.read_bytes())
    model, step = _loaded[path]
    return expected_counts(shards[number], model, step)
