"""Listen, print the address, and shut down in order."""

import asyncio
import logging
import math
import signal
import socket
from collections.abc import Callable
from ipaddress import ip_address
from types import FrameType

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from latentalign.errors import UserError

# a server that is told to stop waits for its requests this many seconds longer than their time limit
MARGIN = 5
KEEP_ALIVE = 15  # seconds without a request; the headers of one have to arrive within them, too

# as a request names them; [::1] is how a Host header writes ::1
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name: any but this one may point anywhere
        return host.lower() == "localhost"


def host_names(host: str) -> list[str]:
    """The names that requests to a server on this host may use.

    On loopback these are its own: a page elsewhere may point a name of its own at this machine, and the browser would
    then let that page read the answers.
    """
    if not is_loopback(host):
        return ["*"]
    return [f"[{host}]" if ":" in host else host, *LOOPBACK]


def listen(host: str, port: int) -> socket.socket:
    """A socket on that address; port 0 takes any free one."""
    if not host.strip():
        raise UserError(
            "serve: --host: expected a name or an address, received nothing; "
            "127.0.0.1 is this machine alone, 0.0.0.0 every network that it is on"
        )
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=512)
    except (OSError, OverflowError, ValueError) as error:  # ValueError: a name that no host can have
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(
            f"serve: cannot listen on {host[:80]} port {port} ({reason}); "
            "try another --host, or another --port (0 takes any free one)"
        ) from None


def address_of(listener: socket.socket) -> str:
    """Where a browser finds it."""
    host, port = listener.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "::1": "[::1]"}.get(host, host)
    return f"http://{shown}:{port}/"


class TimedProtocol(H11Protocol):
    """Hangs up when the headers of a request take longer than an idle connection is kept.

    uvicorn times connections that are idle, and only those: a client that sends a byte now and then would hold its
    connection for ever.
    """

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:  # the headers are here
            self._stop()
        elif self._timer is None:
            self._start()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _start(self) -> None:
        self._timer = self.loop.call_later(self.timeout_keep_alive, self._hang_up)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _hang_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(
                b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            )
            self.transport.close()


def server_config(app: FastAPI, *, time_limit: float, keep_alive: float = KEEP_ALIVE) -> uvicorn.Config:
    """How uvicorn serves the application."""
    return uvicorn.Config(
        app,
        http=TimedProtocol,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=math.ceil(time_limit) + MARGIN,
        timeout_keep_alive=keep_alive,  # type: ignore[arg-type]
    )


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
    config = server_config(app, time_limit=time_limit)
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
