"""Listen, say where, and stop in order."""

import logging
import math
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI

from latentalign.errors import UserError
from latentalign.inspector.middleware import LOOPBACK

MARGIN = (
    5  # seconds beyond the time limit of a request that the server waits for them when it is told to stop
)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    return host in LOOPBACK or host.startswith("127.")


def listen(host: str, port: int) -> socket.socket:
    """A socket on that address; port 0 takes any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=512)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(
            f"serve: cannot listen on {host} port {port} ({reason}); try another --port, or 0 for any free one"
        ) from None


def address_of(listener: socket.socket) -> str:
    """Where a browser finds it."""
    host, port = listener.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "::1": "[::1]"}.get(host, host)
    return f"http://{shown}:{port}/"


class _Server(uvicorn.Server):
    """Says when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


def run_server(
    app: FastAPI, listener: socket.socket, *, ready: Callable[[], None], time_limit: float
) -> None:
    """Serve until SIGINT or SIGTERM: no new connections then, running requests are finished.

    A second signal does not wait for them.
    """
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=math.ceil(time_limit) + MARGIN,
        timeout_keep_alive=15,
    )
    # uvicorn hands the signal on when it is done; being stopped is how a server ends, not an error
    before = {number: signal.signal(number, _ignore) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        _Server(config, ready).run(sockets=[listener])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        listener.close()


def _ignore(number: int, frame: FrameType | None) -> None:
    pass
