"""Batches keep the order and the limits, and lose nothing."""

import random

import pytest

from latentalign.batching import cut


@pytest.mark.parametrize(("examples", "padded"), [(None, 30), (3, 30), (3, None), (None, None), (1, 1)])
def test_every_example_once_in_order_within_the_limits(examples, padded):
    draw = random.Random(5)
    lengths = [draw.randint(0, 40) for _ in range(60)]
    order = list(range(60))
    draw.shuffle(order)
    batches = cut(order, examples=examples, lengths=lengths, padded=padded)
    assert [number for batch in batches for number in batch] == order
    for batch in batches:
        assert batch
        assert examples is None or len(batch) <= examples
        widest = max(lengths[number] for number in batch)
        assert padded is None or len(batch) == 1 or widest * len(batch) <= padded


def test_a_batch_is_as_large_as_it_may_be():
    assert cut(range(5), examples=2) == [[0, 1], [2, 3], [4]]
    # a long example closes the batch before it, and the next one is not padded to its length
    assert cut(range(4), lengths=[2, 9, 2, 2], padded=6) == [[0], [1], [2, 3]]
    assert cut([]) == []
