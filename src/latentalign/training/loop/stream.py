"""The order of training: a stream of steps that is a function of (seed, epoch) and can start anywhere.

A step is what one update sees: `accumulate` batches of the dataset's plan. With several processes each batch is dealt
out over the ranks, so that all of them together see every example exactly once an epoch.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from latentalign.errors import UserError
from latentalign.task import Dataset
from latentalign.training.loop.randomness import seeded


@dataclass(frozen=True)
class Place:
    """Where a stream is: the next step to take."""

    epoch: int = 0
    index: int = 0  # of the step within its epoch


@dataclass
class Share:
    """This process's part of one batch. `counts` is False for a stand-in where there were too few examples."""

    batch: Any
    indices: list[int]
    counts: bool = True


@dataclass
class Step:
    """What one update sees."""

    shares: list[Share]
    place: Place
    next: Place
    start: float  # position in epochs
    end: float
    is_last: bool
    examples: list[list[int]] = field(default_factory=list)  # of all ranks, for error reports

    def to(self, device: torch.device, non_blocking: bool = False) -> "Step":
        for share in self.shares:
            share.batch = share.batch.to(device)
        return self


def deal(indices: list[int], rank: int, world_size: int) -> tuple[list[int], bool]:
    """The examples of a batch that fall to a rank, and whether they count.

    Neighbours in a batch are of similar length, so dealing them out one by one balances the work. A rank that gets
    none takes the first example as a stand-in of weight zero: every rank has to take part in every step.
    """
    mine = indices[rank::world_size]
    return (mine, True) if mine else (indices[:1], False)


class Stream:
    """Steps from `start` until `total` epochs have been seen."""

    def __init__(
        self,
        dataset: Dataset,
        *,
        seed: int,
        total: float,
        accumulate: int = 1,
        rank: int = 0,
        world_size: int = 1,
        start: Place | None = None,
    ) -> None:
        self.dataset = dataset
        self.seed = seed
        self.total = total
        self.accumulate = accumulate
        self.rank = rank
        self.world_size = world_size
        self.start = start or Place()
        self._planned: tuple[int, list[list[list[int]]]] | None = None

    def steps_of(self, epoch: int) -> list[list[list[int]]]:
        """The batches of every step of an epoch."""
        if self._planned is None or self._planned[0] != epoch:
            plan = self.dataset.plan(epoch, self.seed)
            if not plan:
                raise UserError("data: no training examples are left; relax the filters or give more data")
            steps = [plan[first : first + self.accumulate] for first in range(0, len(plan), self.accumulate)]
            self._planned = (epoch, steps)
        return self._planned[1]

    def __iter__(self) -> Iterator[Step]:
        place = self.start
        while True:
            steps = self.steps_of(place.epoch)
            count = len(steps)
            following = Place(place.epoch, place.index + 1)
            if following.index >= count:
                following = Place(place.epoch + 1, 0)
            start, end = place.epoch + place.index / count, place.epoch + (place.index + 1) / count
            if start >= self.total:
                return
            batches = steps[place.index]
            yield Step(
                shares=[self._share(place, number, indices) for number, indices in enumerate(batches)],
                place=place,
                next=following,
                start=start,
                end=end,
                is_last=end >= self.total - 1e-9,
                examples=batches,
            )
            if end >= self.total - 1e-9:
                return
            place = following

    def _share(self, place: Place, number: int, indices: list[int]) -> Share:
        mine, counts = deal(indices, self.rank, self.world_size)
        with seeded(self.seed, "batch", place.epoch, place.index, number, self.rank):
            return Share(self.dataset.collate(mine), mine, counts)
