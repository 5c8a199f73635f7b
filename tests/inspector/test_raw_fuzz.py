"""Bytes that are hardly HTTP: every one is answered or hung up on, none by 5xx, and none keeps a place."""

import random
import socket
import time

import httpx
import pytest

from latentalign.inspector.app import build_app
from latentalign.inspector.limits import Limits
from tests.inspector.serving import serving

METHODS = (b"GET", b"POST", b"HEAD", b"PUT", b"get", b"", b"G\x00T", b"CONNECT", b"A" * 300)
PATHS = (
    b"/",
    b"/api/runs",
    b"/api/translate",
    b"/healthz",
    b"*",
    b"",
    b"//",
    b"/%00",
    b"/\xff",
    b"http://x/",
    b"/" + b"a" * 9000,
)
VERSIONS = (b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9", b"", b"http/1.1")
HEADERS = (
    b"Host: 127.0.0.1", b"Host: evil.example", b"Host: a@127.0.0.1", b"Host:", b"Host: 127.0.0.1\r\nHost: localhost",
    b"Content-Type: application/json", b"Content-Type: text/plain", b"Content-Length: 2", b"Content-Length: -2",
    b"Content-Length: 99999999999999999999", b"Content-Length: 2, 3", b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip", b"Expect: 100-continue", b"Upgrade: websocket\r\nConnection: Upgrade",
    b"Connection: keep-alive, close", b"X: " + b"y" * 70_000, b"no colon", b" folded", b"\x00: \x01",
    b"If-None-Match: \xff", b"Range: bytes=0-9",
)  # fmt: skip
BODIES = (
    b"",
    b"{}",
    b'{"sentences":["ja"],"beam":1}',
    b"2\r\n{}\r\n0\r\n\r\n",
    b"zz\r\n",
    b"\xff" * 50,
    b"[" * 3000,
)
ENDS = (b"\r\n", b"\n", b"\r")
CASES = 1000


@pytest.fixture(scope="module")
def site(runs):
    limits = Limits(seconds=2, body_bytes=5000, characters=100)
    with serving(build_app(runs, limits=limits, hosts=("127.0.0.1",)), keep_alive=1) as found:
        yield found


def mostly(rng: random.Random, parts: tuple[bytes, ...], good: int) -> bytes:
    """One of the first few parts, which are as they should be, or now and then any."""
    return rng.choice(parts[:good] if rng.random() < 0.8 else parts)


def request_of(rng: random.Random) -> bytes:
    end = rng.choice(ENDS) if rng.random() < 0.2 else b"\r\n"
    first = b" ".join((mostly(rng, METHODS, 2), mostly(rng, PATHS, 4), mostly(rng, VERSIONS, 1)))
    lines = [
        first,
        *([HEADERS[0]] if rng.random() < 0.7 else []),
        *rng.choices(HEADERS[1:], k=rng.randrange(4)),
    ]
    text = end.join(lines) + end + end + rng.choice(BODIES)
    if rng.random() < 0.1:
        place = rng.randrange(len(text))
        text = text[:place] + bytes([rng.randrange(256)]) + text[place + 1 :]
    return text[: rng.randrange(len(text))] if rng.random() < 0.1 else text


def statuses(address: httpx.URL, text: bytes) -> list[int]:
    """The status lines that come back until the server hangs up."""
    found = b""
    with socket.create_connection((address.host, address.port), timeout=60) as connection:
        try:
            connection.sendall(text)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65_536):
                found += part
        except ConnectionError:
            pass
    return [int(line[9:12]) for line in found.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


def test_hardly_http_is_answered_or_hung_up_on(site):
    rng = random.Random(5)
    address = httpx.URL(site.address)
    started = time.monotonic()
    seen = set()
    for _ in range(CASES):
        text = request_of(rng)
        found = statuses(address, text)
        seen |= set(found)
        assert not [status for status in found if status >= 500 and status != 503], text[:300]
    assert {200, 400, 404, 415} <= seen  # much of it got through to the application
    assert time.monotonic() - started < CASES  # nothing was waited for
    health = site.client.get("healthz")
    assert health.status_code == 200
    assert health.json()["waiting"] == 0
