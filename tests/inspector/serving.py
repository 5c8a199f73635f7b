"""A real server in a thread of the test, and a client for it."""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import uvicorn
from fastapi import FastAPI

from latentalign.inspector.batching import QueuedRequest
from latentalign.inspector.server import address_of, listen, server_config
from latentalign.inspector.service import InspectorService

PATIENCE = 120  # seconds; the machine may be busy with something else


@dataclass
class Site:
    """An address, the application behind it, and a client that speaks to it."""

    address: str
    app: FastAPI
    client: httpx.Client = field(repr=False)

    @property
    def service(self) -> InspectorService:
        return self.app.state.service

    def post(self, path: str, **body: object) -> httpx.Response:
        return self.client.post(path, json=body)

    def asked(self, path: str, **body: object) -> dict:
        """The answer to a request that must succeed."""
        answer = self.post(path, **body)
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextmanager
def serving(app: FastAPI, *, keep_alive: float = 15) -> Iterator[Site]:
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(server_config(app, time_limit=PATIENCE, keep_alive=keep_alive))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    address = address_of(listener)
    try:
        # the socket listens already: a first request waits until the server accepts it
        with httpx.Client(base_url=address, timeout=PATIENCE) as client:
            yield Site(address, app, client)
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        listener.close()


def assert_refused(answer: httpx.Response, status: int, *parts: str) -> dict:
    """An error as the API gives it: JSON, one line, and nothing of Python in it."""
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["status"] == status
    assert "Traceback" not in answer.text
    assert ".py" not in answer.text
    for part in parts:
        assert part in error["message"]
    return error


class Blocked:
    """The model's thread, kept busy until told otherwise."""

    def __init__(self, service: InspectorService) -> None:
        self.service = service
        self.free = threading.Event()
        begun = threading.Event()

        def wait(items: list[int]) -> list[int]:
            begun.set()
            self.free.wait(PATIENCE)
            return items

        self.future = service.batcher.submit(QueuedRequest(object(), [1], wait, math.inf))
        assert begun.wait(PATIENCE)

    def wait_for(self, count: int) -> None:
        """Until that many sentences queue."""
        deadline = time.monotonic() + PATIENCE
        while self.service.batcher.waiting < count:
            assert time.monotonic() < deadline
            time.sleep(0.01)
