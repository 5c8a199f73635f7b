"""The queue and the thread behind it."""

import math
import threading
import time

import pytest
import torch
from torch import nn

from latentalign.inspector.batching import Deadline, MicroBatcher, Overloaded, QueuedRequest, TimeUp

PATIENCE = 60


class Gate:
    """Work that waits until it is let through, and remembers how it was called."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.begun = threading.Event()
        self.calls: list[list[int]] = []

    def __call__(self, items: list[int]) -> list[int]:
        self.calls.append(items)
        self.begun.set()
        assert self.open.wait(PATIENCE)
        if any(item < 0 for item in items):
            raise ValueError("negative")
        return [10 * item for item in items]


@pytest.fixture
def gate():
    found = Gate()
    yield found
    found.open.set()


@pytest.fixture
def batcher(gate):
    found = MicroBatcher(batch=4, queue=6)
    yield found
    gate.open.set()
    found.close()


def job(gate, *items, key="same", deadline=math.inf):
    return QueuedRequest(key, items, gate, deadline)


def occupy(batcher, gate):
    """Keep the thread busy, so that what follows has to queue."""
    future = batcher.submit(job(gate, 0, key="first"))
    assert gate.begun.wait(PATIENCE)
    return future


def test_what_waits_is_computed_together_and_handed_back_apart(batcher, gate):
    first = occupy(batcher, gate)
    futures = [batcher.submit(job(gate, 1, 2)), batcher.submit(job(gate, 3))]
    gate.open.set()
    assert first.result(PATIENCE) == [0]
    assert [future.result(PATIENCE) for future in futures] == [[10, 20], [30]]
    assert gate.calls == [[0], [1, 2, 3]]


def test_another_kind_and_what_exceeds_a_batch_come_later(batcher, gate):
    occupy(batcher, gate)
    futures = [
        batcher.submit(job(gate, 1, 2)),
        batcher.submit(job(gate, 9, key="other")),
        batcher.submit(job(gate, 3, 4)),
        batcher.submit(job(gate, 5)),
    ]
    gate.open.set()
    assert futures[-1].result(PATIENCE) == [50]
    assert gate.calls == [[0], [1, 2, 3, 4], [9], [5]]


def test_batches_shrink_where_items_take_long(gate):
    batcher = MicroBatcher(batch=64, queue=64, longest=25.0)
    occupy(batcher, gate)
    futures = [batcher.submit(job(gate, number)) for number in range(1, 6)]
    batcher._seconds_per_item = 10.0  # and 8 when the first job has turned out to be fast
    gate.open.set()
    assert futures[-1].result(PATIENCE) == [50]
    assert gate.calls == [[0], [1, 2, 3], [4, 5]]
    batcher.close()


def test_a_full_queue_refuses_and_says_when_to_come_back(batcher, gate):
    occupy(batcher, gate)
    batcher.submit(job(gate, *range(1, 5)))
    batcher.submit(job(gate, 5, 6))
    assert batcher.waiting == 6
    with pytest.raises(Overloaded) as caught:
        batcher.submit(job(gate, 7))
    assert 1 <= caught.value.retry_after <= 60


def test_an_empty_queue_takes_a_job_larger_than_itself(batcher, gate):
    gate.open.set()
    assert len(batcher.submit(job(gate, *range(20))).result(PATIENCE)) == 20


def test_a_client_that_left_holds_no_place_and_costs_no_work(batcher, gate):
    occupy(batcher, gate)
    left = batcher.submit(job(gate, 1, 2, 3, 4, 5, 6))
    assert left.cancel()
    assert batcher.waiting == 0
    stays = batcher.submit(job(gate, 7))
    gate.open.set()
    assert stays.result(PATIENCE) == [70]
    assert gate.calls == [[0], [7]]


def test_one_client_s_trouble_is_not_the_others(batcher, gate):
    occupy(batcher, gate)
    good, bad = batcher.submit(job(gate, 1)), batcher.submit(job(gate, -1))
    gate.open.set()
    assert good.result(PATIENCE) == [10]
    with pytest.raises(ValueError, match="negative"):
        bad.result(PATIENCE)
    assert batcher.submit(job(gate, 3)).result(PATIENCE) == [30]


def test_results_that_do_not_fit_their_items_are_an_error(batcher):
    future = batcher.submit(QueuedRequest("key", [1, 2], lambda items: [1], math.inf))
    with pytest.raises(RuntimeError, match="expected 2 results, got 1"):
        future.result(PATIENCE)


def test_closing_finishes_what_was_begun_and_refuses_the_rest(gate):
    batcher = MicroBatcher(batch=4, queue=6)
    begun, waits = occupy(batcher, gate), batcher.submit(job(gate, 1))
    closing = threading.Thread(target=batcher.close, kwargs={"timeout": PATIENCE})
    closing.start()
    with pytest.raises(Overloaded):
        waits.result(PATIENCE)
    gate.open.set()
    closing.join(PATIENCE)
    assert begun.result(PATIENCE) == [0]
    with pytest.raises(Overloaded):
        batcher.submit(job(gate, 2))


def test_a_model_is_stopped_when_nobody_waits_any_more():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    batcher = MicroBatcher()
    batcher.deadline.watch(model)

    def forever(items):
        while True:
            model(torch.zeros(1, 2))

    future = batcher.submit(QueuedRequest("key", [1], forever, time.monotonic() + 0.05))
    with pytest.raises(TimeUp):
        future.result(PATIENCE)
    in_time = QueuedRequest("key", [1], lambda items: [model(torch.zeros(1, 2)).item()], math.inf)
    assert len(batcher.submit(in_time).result(PATIENCE)) == 1
    batcher.close()


def test_a_deadline_in_the_future_lets_pass():
    deadline = Deadline()
    deadline.check()
    deadline.at = time.monotonic() - 1
    with pytest.raises(TimeUp):
        deadline.check()
