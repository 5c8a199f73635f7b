"""The order of training: a function of seed and epoch, from any place, over any number of processes."""

import itertools

import pytest
import torch

from latentalign.training.loop.stream import Place, Step, Stream, deal
from tests.training.copying import CopyData


class Numbers:
    """Ten examples that are their own number; collate draws a random one beside each."""

    def __init__(self, count: int = 10, batch: int = 3) -> None:
        self.count, self.batch = count, batch

    def __len__(self) -> int:
        return self.count

    def plan(self, epoch: int, seed: int) -> list[list[int]]:
        generator = torch.Generator().manual_seed(seed * 100 + epoch)
        order = torch.randperm(self.count, generator=generator).tolist()
        return [order[start : start + self.batch] for start in range(0, self.count, self.batch)]

    def collate(self, indices: list[int]) -> torch.Tensor:
        return torch.tensor(indices) + torch.rand(len(indices)) / 2

    def describe(self, indices: list[int]) -> str:
        return str(indices)


def values(step: Step) -> list[list[float]]:
    return [share.batch.tolist() for share in step.shares]


def test_every_example_once_an_epoch_and_another_order_each_time() -> None:
    steps = list(Stream(Numbers(), seed=1, total=2.0))
    epochs = [
        [index for step in half for batch in step.examples for index in batch]
        for half in (steps[:4], steps[4:])
    ]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert epochs[0] != epochs[1]
    assert [step.is_last for step in steps] == [False] * 7 + [True]
    assert steps[-1].end == 2.0


@pytest.mark.parametrize("start", range(5))
@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_stream_can_start_anywhere(start: int, accumulate: int) -> None:
    whole = list(Stream(Numbers(), seed=5, total=2.5, accumulate=accumulate))
    torch.manual_seed(start)  # the state of the global generator must not matter
    rest = list(Stream(Numbers(), seed=5, total=2.5, accumulate=accumulate, start=whole[start].place))
    assert [values(step) for step in rest] == [values(step) for step in whole[start:]]
    assert [step.next for step in rest] == [step.next for step in whole[start:]]


def test_a_fraction_of_an_epoch_ends_the_stream() -> None:
    assert len(list(Stream(Numbers(), seed=1, total=1.5))) == 6
    assert len(list(Stream(Numbers(), seed=1, total=0.01))) == 1
    assert len(list(Stream(Numbers(), seed=1, total=1.0))) == 4
    assert list(Stream(Numbers(), seed=1, total=1.0, start=Place(1, 0))) == []


def test_accumulation_joins_neighbours_within_an_epoch() -> None:
    steps = list(Stream(Numbers(), seed=1, total=2.0, accumulate=3))
    assert [len(step.shares) for step in steps] == [3, 1, 3, 1]


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 7])
def test_ranks_share_every_batch_without_overlap(world_size: int) -> None:
    streams = [
        list(Stream(Numbers(), seed=2, total=1.0, rank=rank, world_size=world_size))
        for rank in range(world_size)
    ]
    for steps in zip(*streams, strict=True):
        counted = [
            index for step in steps for share in step.shares if share.counts for index in share.indices
        ]
        assert sorted(counted) == sorted(steps[0].examples[0])
        assert all(share.indices for step in steps for share in step.shares), "every rank has something to do"


def test_a_rank_without_examples_gets_a_stand_in() -> None:
    assert deal([4], 0, 2) == ([4], True)
    assert deal([4], 1, 2) == ([4], False)
    assert deal([4, 5, 6], 1, 2) == ([5], True)


def test_the_global_generator_is_left_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    for _ in itertools.islice(Stream(Numbers(), seed=2, total=5.0), 9):
        pass
    assert torch.equal(torch.rand(4), expected)


def test_batches_move_to_a_device() -> None:
    step = next(iter(Stream(CopyData(4, 1, 2), seed=1, total=1.0)))
    assert step.to(torch.device("meta")).shares[0].batch.memory.device.type == "meta"
