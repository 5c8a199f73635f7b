"""Micro-batching: what arrives while the model computes is computed together afterwards.

One thread owns the models. It never waits for a batch to fill: a request that finds the thread idle starts at once, and
requests that arrive meanwhile and ask for the same kind of work (equal keys) form the next batch. So batches grow
with the load, and no request waits longer because of them.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

LONGEST_RETRY = 60  # seconds


class Overloaded(Exception):
    """The queue is full; `retry_after` is when it should have room again, in seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"the queue is full; try again in {retry_after} s")
        self.retry_after = retry_after


class TimeUp(Exception):
    """The time of every request in this computation has run out."""


class Deadline:
    """When the computation under way is given up; models check it before each of their layers."""

    def __init__(self) -> None:
        self.at = math.inf
        self._hooks: list[Any] = []

    def check(self) -> None:
        if time.monotonic() > self.at:
            raise TimeUp

    def watch(self, model: Any) -> None:
        """Make a torch module check this deadline whenever one of its parts is called."""
        for module in model.modules():
            self._hooks.append(module.register_forward_pre_hook(lambda *_: self.check()))

    def release(self) -> None:
        """Let go of the models."""
        while self._hooks:
            self._hooks.pop().remove()


@dataclass(eq=False)
class QueuedRequest:
    """Items to compute. Requests of equal keys may be computed by one call of either's `compute`."""

    key: Hashable
    items: Sequence[Any]
    compute: Callable[[list[Any]], list[Any]]  # a result for every item
    deadline: float  # of time.monotonic()
    future: "Future[list[Any]]" = field(default_factory=Future)


class MicroBatcher:
    """A bounded queue and the thread that empties it.

    A batch has at most `batch` items, and fewer where those would take longer than `longest` seconds: on a slow machine
    a batch must not take longer than the time limit of its requests.
    """

    def __init__(
        self,
        *,
        batch: int = 64,
        queue: int = 512,
        longest: float = math.inf,
        deadline: Deadline | None = None,
    ) -> None:
        self.batch, self.queue, self.longest = batch, queue, longest
        self.deadline = deadline or Deadline()
        self._waiting: deque[QueuedRequest] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self.computing = 0  # items under way
        self._seconds_per_item = 0.05  # an estimate until something has been measured
        self._thread = threading.Thread(target=self._work, name="latentalign-model", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Items in the queue."""
        with self._changed:
            return self._count()

    def submit(self, request: QueuedRequest) -> "Future[list[Any]]":
        """Queue a request, or raise `Overloaded`."""
        with self._changed:
            if self._closed:
                raise Overloaded(LONGEST_RETRY)
            waiting = self._count()
            # an empty queue takes any request: the limits of a request have been checked already
            if waiting and waiting + len(request.items) > self.queue:
                raise Overloaded(self._retry_after(waiting))
            self._waiting.append(request)
            self._changed.notify()
        return request.future

    def close(self, *, timeout: float = 5.0) -> None:
        """Finish what was begun, refuse the rest, and end the thread."""
        with self._changed:
            self._closed = True
            for request in self._waiting:
                if request.future.set_running_or_notify_cancel():
                    request.future.set_exception(Overloaded(LONGEST_RETRY))
            self._waiting.clear()
            self._changed.notify()
        self._thread.join(timeout)
        self.deadline.release()

    def _count(self) -> int:
        # requests whose clients have left hold no place
        self._waiting = deque(request for request in self._waiting if not request.future.cancelled())
        return sum(len(request.items) for request in self._waiting)

    def _retry_after(self, waiting: int) -> int:
        return min(LONGEST_RETRY, max(1, math.ceil(waiting * self._seconds_per_item)))

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if not self._waiting:
                    return
                requests = self._take()
            requests = [request for request in requests if request.future.set_running_or_notify_cancel()]
            if requests:
                self._compute(requests)
                self.computing = 0

    def _take(self) -> list[QueuedRequest]:
        """The oldest request, and as many of its kind as a batch holds."""
        first = self._waiting.popleft()
        most = min(self.batch, self.longest / self._seconds_per_item)
        taken, count = [first], len(first.items)
        rest: deque[QueuedRequest] = deque()
        for request in self._waiting:
            if request.key == first.key and count + len(request.items) <= most:
                taken.append(request)
                count += len(request.items)
            else:
                rest.append(request)
        self._waiting = rest
        return taken

    def _compute(self, requests: list[QueuedRequest]) -> None:
        started = time.monotonic()
        items = [item for request in requests for item in request.items]
        self.computing = len(items)
        # a batch is worth computing as long as anybody waits for it
        self.deadline.at = max(request.deadline for request in requests)
        try:
            results = requests[0].compute(items)
            if len(results) != len(items):
                raise RuntimeError(f"expected {len(items)} results, got {len(results)}")
        except Exception as error:
            self._learn(started, len(items))
            self._fail(requests, error)
        else:
            self._learn(started, len(items))
            place = 0
            for request in requests:
                request.future.set_result(results[place : place + len(request.items)])
                place += len(request.items)

    def _learn(self, started: float, items: int) -> None:
        """Average the time of an item; a slower one counts for more than a faster one."""
        self.deadline.at = math.inf
        spent = (time.monotonic() - started) / max(1, items)
        share = 0.5 if spent > self._seconds_per_item else 0.2
        self._seconds_per_item += share * (spent - self._seconds_per_item)

    def _fail(self, requests: list[QueuedRequest], error: Exception) -> None:
        if len(requests) == 1 or isinstance(error, TimeUp):
            for request in requests:
                request.future.set_exception(error)
            return
        for request in requests:  # an error of one request must not fail the others
            self._compute([request])
