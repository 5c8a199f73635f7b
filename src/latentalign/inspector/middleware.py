"""What holds for every request, whatever it asks: sizes, time, headers, and a log without users' texts."""

import asyncio
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from latentalign.files import to_json
from latentalign.inspector.limits import TOO_LARGE, UNAVAILABLE, UNSUPPORTED, Limits, Refused
from latentalign.inspector.service import time_is_up

LOG = logging.getLogger("latentalign.inspector")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

# nothing but the server's own files, nothing inline; pictures made in the page are blobs
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class RequestMiddleware:
    """ASGI middleware around the whole application."""

    def __init__(self, app: App, *, limits: Limits, paths: frozenset[str]) -> None:
        self.app, self.limits, self.paths = app, limits, paths
        self.under_way = 0

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        response = _Response(send)
        started = time.perf_counter()
        self.under_way += 1
        try:
            await self._answer(scope, receive, response)
        except Refused as refused:
            await response.refuse(refused)
        except asyncio.CancelledError:  # a second signal: the server does not wait any longer
            await response.refuse(Refused(UNAVAILABLE, "the server is stopping", retry_after=60))
            raise
        except Exception as error:
            log_failure(error)
            if response.status is None:
                await response.refuse(
                    Refused(500, "something went wrong here, and was written to the server's log")
                )
        finally:
            self.under_way -= 1
            self._log(scope, response.status, time.perf_counter() - started)

    async def _answer(self, scope: MutableMapping[str, Any], receive: Receive, response: "_Response") -> None:
        self._check_headers(scope)
        if self.under_way > self.limits.connections and scope["path"] != "/healthz":
            raise Refused(
                UNAVAILABLE,
                f"the server is busy with {self.limits.connections} requests, its limit; try again in 1 s",
                limit=("connections", self.limits.connections),
                retry_after=1,
            )
        try:
            async with asyncio.timeout(self.limits.seconds):
                body = await self._read(scope, receive)
        except TimeoutError:
            limit = ("seconds", self.limits.seconds)
            message = (
                f"the request did not arrive within {self.limits.seconds:g} s, the time limit of this server"
            )
            raise Refused(408, message, limit=limit, hang_up=True) from None
        if body is None:
            return  # the client has left
        try:
            async with asyncio.timeout(self.limits.seconds):
                await self.app(scope, _replay(body, receive), response)
        except TimeoutError:
            raise time_is_up(self.limits) from None

    def _check_headers(self, scope: MutableMapping[str, Any]) -> None:
        """Refuse headers that contradict each other, and a body that does not claim to be JSON."""
        headers = dict(scope["headers"])
        if b"content-length" in headers and b"transfer-encoding" in headers:
            # two lengths: a proxy between client and server might take the other one
            message = "content-length and transfer-encoding: expected one of them, received both"
            raise Refused(400, message, hang_up=True)
        if scope["method"] != "POST" or not scope["path"].startswith("/api/"):
            return
        kind = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
        if kind != "application/json":
            received = repr(kind[:60]) if kind else "none"
            message = f"content-type: expected application/json, received {received}; "
            raise Refused(UNSUPPORTED, message + "send the header Content-Type: application/json")

    async def _read(self, scope: MutableMapping[str, Any], receive: Receive) -> bytes | None:
        """The whole body, or nothing if the client leaves; a body that is too large is not read to its end."""
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared[:20]) > self.limits.body_bytes:
            raise self._too_large()
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.limits.body_bytes:
                raise self._too_large()
            if not message.get("more_body", False):
                return b"".join(parts)

    def _too_large(self) -> Refused:
        most = self.limits.body_bytes
        return Refused(
            TOO_LARGE,
            f"the request is larger than {most} bytes, the limit of this server (body_bytes)",
            limit=("body_bytes", most),
            hang_up=True,
        )

    def _log(self, scope: MutableMapping[str, Any], status: int | None, seconds: float) -> None:
        # a path that is not ours may hold anything, also a text
        path = scope["path"] if scope["path"] in self.paths else "(unknown path)"
        method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD") else "(other method)"
        LOG.info("%s %s %s %.0f ms", method, path, status or "left", 1000 * seconds)


class _Response:
    """`send` with the headers of every answer, remembering its status."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status: int | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), *HEADERS]}
        await self._send(message)

    async def refuse(self, refused: Refused) -> None:
        if self.status is not None:
            return
        body = to_json(error_content(refused)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        headers += [
            (name.lower().encode(), value.encode()) for name, value in (refused.headers or {}).items()
        ]
        await self({"type": "http.response.start", "status": refused.status_code, "headers": headers})
        await self({"type": "http.response.body", "body": body})


def error_content(refused: Refused) -> dict[str, Any]:
    """The body of an answer that is an error, as `schemas.ErrorResponse` describes it."""
    limit = None if refused.limit is None else {"name": refused.limit[0], "value": refused.limit[1]}
    # half a surrogate pair may come in by the name of a field; it could not be sent back
    message = str(refused.detail).encode("utf-8", errors="replace").decode("utf-8")
    return {"error": {"status": refused.status_code, "message": message, "limit": limit}}


def log_failure(error: BaseException) -> None:
    """Where it went wrong, without the message: that may quote a user's text."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    LOG.error("%s\n%s", type(error).__name__, frames)


def _replay(body: bytes, receive: Receive) -> Receive:
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
