"""What holds for every request: sizes, time, headers, hosts, secrecy of texts and of the inside."""

import json
import logging
import math
import socket
import threading
import time

import httpx
import pytest

from latentalign.errors import UserError
from latentalign.inspector import translation_results
from latentalign.inspector.app import build_app
from latentalign.inspector.limits import Limits
from latentalign.inspector.server import host_names, is_loopback
from tests.inspector.serving import PATIENCE, Blocked, assert_refused, serving

SECRET = "Geheimnis"
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("limits", "path", "body", "status", "name"),
    [
        ({"characters": 5}, "translate", {"sentences": ["ja", "ja ja ja"]}, 413, "characters"),
        ({"total_characters": 5}, "translate", {"sentences": ["ja ja", "ja"]}, 413, "total_characters"),
        ({"sentences": 2}, "translate", {"sentences": ["ja"] * 3}, 413, "sentences"),
        ({"sentences": 2}, "align", {"pairs": [{"source": "a", "target": "b"}] * 3}, 413, "sentences"),
        ({"pieces": 3}, "translate", {"sentences": ["Fußball spielen"]}, 413, "pieces"),
        ({"pieces": 3}, "score", {"pairs": [{"source": "a", "target": "football"}]}, 413, "pieces"),
        ({"cells": 3}, "align", {"pairs": [{"source": "a b", "target": "c d"}], "matrices": True}, 413, "cells"),
        ({"beam": 4}, "translate", {"sentences": ["ja"], "beam": 5}, 422, "beam"),
        ({"k": 4}, "translate", {"sentences": ["ja"], "beam": 1, "inference": "kmax:5"}, 422, "k"),
        ({"samples": 4}, "score", {"pairs": [{"source": "a", "target": "b"}], "inference": "sample:5"}, 422, "samples"),
        ({"top": 4}, "next", {"source": "ja", "top": 5}, 422, "top"),
        ({"body_bytes": 50}, "translate", {"sentences": ["ja " * 30]}, 413, "body_bytes"),
    ],
)  # fmt: skip
def test_a_limit_that_is_met_is_named(limited, limits, path, body, status, name):
    value = limits[name]
    site = limited(**limits)
    error = assert_refused(site.post(f"api/{path}", **body), status, str(value))
    assert error["limit"] == {"name": name, "value": value}
    assert site.client.get("api/runs").json()["limits"][name] == value


def test_the_description_names_the_limits(limited):
    schemas = (
        limited(sentences=7, characters=90, beam=3).client.get("openapi.json").json()["components"]["schemas"]
    )
    sentences = schemas["TranslateRequest"]["properties"]["sentences"]
    assert (sentences["maxItems"], sentences["items"]["maxLength"]) == (7, 90)
    assert schemas["TranslateRequest"]["properties"]["beam"]["maximum"] == 3
    assert schemas["Pair"]["properties"]["source"]["maxLength"] == 90


def test_a_body_without_a_length_is_not_read_to_its_end(limited):
    site = limited(body_bytes=1000)
    sent = []

    def endless():
        while len(sent) < 100_000:
            sent.append(1)
            yield b"x" * 500

    try:
        answer = site.client.post("api/translate", content=endless(), headers=JSON)
        assert_refused(answer, 413, "1000")
    except httpx.TransportError:
        pass  # hung up on while it was still sending
    assert len(sent) < 100_000


def test_a_request_that_does_not_arrive_is_given_up(limited):
    site = limited(seconds=0.3)
    address = httpx.URL(site.address)
    with socket.create_connection((address.host, address.port), timeout=PATIENCE) as connection:
        connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
        answer = connection.recv(10_000)
    assert answer.startswith(b"HTTP/1.1 408")


def test_what_takes_too_long_is_answered_in_time(limited):
    site = limited(seconds=0.3)
    blocked = Blocked(site.service)
    answer = site.post("api/translate", sentences=["ja"])
    error = assert_refused(answer, 503, "0.3 s", "time limit")
    assert error["limit"]["name"] == "seconds"
    assert int(answer.headers["Retry-After"]) >= 1
    assert site.service.batcher.waiting == 0  # who was told no holds no place
    assert site.client.get("healthz").status_code == 200  # which needs no model
    blocked.free.set()
    blocked.future.result(PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while site.post("api/score", pairs=[{"source": "ja", "target": "yes"}]).status_code != 200:
        assert time.monotonic() < deadline  # it recovers, however slow the machine


def test_a_full_queue_answers_503_with_retry_after(limited):
    site = limited(queue=2)
    blocked = Blocked(site.service)
    answers = []
    waiting = threading.Thread(
        target=lambda: answers.append(site.post("api/translate", sentences=["ja", "ja"], beam=1))
    )
    waiting.start()
    blocked.wait_for(2)
    refused = httpx.post(f"{site.address}api/translate", json={"sentences": ["ja"]}, timeout=PATIENCE)
    error = assert_refused(refused, 503, "2 sentences")
    assert error["limit"] == {"name": "queue", "value": 2}
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    blocked.free.set()
    waiting.join(PATIENCE)
    assert answers[0].status_code == 200


def test_more_requests_at_once_than_allowed_are_refused(limited):
    site = limited(connections=1)
    blocked = Blocked(site.service)
    waiting = threading.Thread(target=lambda: site.post("api/translate", sentences=["ja"], beam=1))
    waiting.start()
    blocked.wait_for(1)
    refused = httpx.get(f"{site.address}api/runs", timeout=PATIENCE)
    assert_refused(refused, 503, "1 requests")
    # which must always answer
    assert httpx.get(f"{site.address}healthz", timeout=PATIENCE).status_code == 200
    assert refused.headers["Retry-After"] == "1"
    blocked.free.set()
    waiting.join(PATIENCE)
    assert site.client.get("api/runs").status_code == 200


def test_a_failure_inside_shows_nothing_of_the_inside(site, monkeypatch, caplog):
    def fail(*arguments, **options):
        raise RuntimeError(f"could not handle {SECRET}")

    monkeypatch.setattr(translation_results, "translate", fail)
    with caplog.at_level(logging.INFO):
        answer = site.post("api/translate", sentences=[SECRET])
    assert_refused(answer, 500, "went wrong")
    assert "RuntimeError" not in answer.text
    assert "RuntimeError" in caplog.text  # the operator learns what and where,
    assert "in fail" in caplog.text
    assert SECRET not in server_log(caplog)  # and not what the user wrote


def server_log(caplog):
    """What this process logs, without its own clients."""
    return "\n".join(record.getMessage() for record in caplog.records if not record.name.startswith("http"))


def test_texts_stay_out_of_the_log_unless_asked_for(runs, caplog):
    asked = {"pairs": [{"source": SECRET, "target": "yes\nGET /forged"}]}
    with caplog.at_level(logging.INFO):
        with serving(build_app(runs)) as site:
            site.post("api/score", **asked)
            site.client.get(f"{SECRET}?{SECRET}")
            site.client.request(SECRET, "/")
        assert SECRET not in server_log(caplog)
        assert "POST /api/score 200" in caplog.text
        assert "GET (unknown path) 404" in caplog.text
        caplog.clear()
        with serving(build_app(runs, log_texts=True)) as site:
            site.post("api/score", **asked)
    (line,) = [line for line in server_log(caplog).split("\n") if SECRET in line]
    assert json.loads(line.partition(": ")[2])[0][0] == SECRET


@pytest.mark.parametrize("path", ["", "docs", "static/app.js", "api/runs", "nowhere", "openapi.json"])
def test_every_answer_carries_the_policy(site, path):
    headers = site.client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy  # nothing from elsewhere
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "server" not in headers


def test_other_names_than_its_own_are_refused_on_loopback(site):
    """A page elsewhere may point its name at 127.0.0.1; the browser then sends that name."""
    foreign = (
        "evil.example", "127.0.0.1.evil.example", "", "[::1", "evil@127.0.0.1", "127.0.0.1:80@evil.example",
        "localhost:80@evil.example", "localhost, evil.example", "www.localhost",
    )  # fmt: skip
    for name in foreign:
        assert site.client.get("api/runs", headers={"Host": name}).status_code == 400, name
    for name in ("localhost:8000", "127.0.0.1:1", "[::1]:8000", "LOCALHOST"):
        assert site.client.get("api/runs", headers={"Host": name}).status_code == 200, name


@pytest.mark.parametrize(
    ("host", "names"),
    [
        ("127.0.0.1", True), ("127.3.2.1", True), ("localhost", True), ("::1", True),
        ("0.0.0.0", False), ("::", False), ("127.evil.example", False), ("192.0.2.1", False),
    ],
)  # fmt: skip
def test_only_loopback_insists_on_its_own_names(host, names):
    assert is_loopback(host) is names
    found = host_names(host)
    assert found == ["*"] if not names else "*" not in found
    assert not names or (f"[{host}]" if ":" in host else host) in found


def exchange(site, *parts, pause=0.0):
    """What comes back for these bytes, sent by hand, until the server hangs up."""
    address = httpx.URL(site.address)
    answer = b""
    with socket.create_connection((address.host, address.port), timeout=PATIENCE) as connection:
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
        except OSError:
            pass  # hung up on
        while part := connection.recv(10_000):
            answer += part
    return answer


HEAD = b"POST /api/translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n"
BODY = b'{"sentences":["ja"],"beam":1}'


@pytest.mark.parametrize(
    "lengths",
    [
        b"Content-Length: 29\r\nContent-Length: 28\r\n",
        b"Content-Length: 29, 28\r\n",
        b"Content-Length: 29\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        b"Content-Length: +29\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 0x1d\r\n",
    ],
)
def test_lengths_that_contradict_each_other_are_refused(site, lengths):
    assert exchange(site, HEAD + lengths + b"\r\n" + BODY).startswith(b"HTTP/1.1 400 ")


def test_a_length_that_is_true_is_taken(site):
    assert exchange(site, HEAD + b"Content-Length: 29\r\n\r\n" + BODY).startswith(b"HTTP/1.1 200 ")
    chunked = b"Transfer-Encoding: chunked\r\n\r\n1d\r\n" + BODY + b"\r\n0\r\n\r\n"
    assert exchange(site, HEAD + chunked).startswith(b"HTTP/1.1 200 ")


def test_headers_that_trickle_in_are_given_up(runs):
    with serving(build_app(runs), keep_alive=0.5) as site:
        started = time.monotonic()
        letters = [
            bytes([letter]) for letter in b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: " + b"x" * 500
        ]
        assert exchange(site, *letters, pause=0.05).startswith(b"HTTP/1.1 408 ")
        assert time.monotonic() - started < 15  # all of the letters would take 27 s
        # nor may a second request on the same connection
        first = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        answer = exchange(site, first, *letters, pause=0.05)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"HTTP/1.1 408 " in answer
        assert exchange(site, b"") != b""  # nor a connection without a request
        assert site.client.get("healthz").status_code == 200


def test_headers_may_be_slow_and_the_answer_too(runs):
    """The time is that of the headers alone: a request that has begun is not given up by it."""
    with serving(build_app(runs), keep_alive=1.0) as site:
        blocked = Blocked(site.service)
        threading.Timer(2.0, blocked.free.set).start()
        assert site.post("api/score", pairs=[{"source": "ja", "target": "yes"}]).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "static/../app.py", "static/%2e%2e/app.py", "static/..%2fapp.py", "//etc/passwd", "static//etc/passwd",
        "static/%2fetc%2fpasswd", "..%2f..%2fconfig.yaml", "static/index.html", "static", "static/app.js%00.css",
        "api/runs/../../config.yaml", "model.safetensors",
    ],
)  # fmt: skip
def test_no_path_reaches_the_disk(site, path):
    # by hand: a client library would tidy the path up
    answer = exchange(site, f"GET /{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 404"), answer[:200]


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 422),
        (b"{", 422),
        (b"[]", 422),
        (b"\xff\xfe", 422),
        (b'{"sentences":["\\ud800"]}', 422),
        (b'{"\\ud800":1}', 422),
        (b'{"sentences":' + b"[" * 50_000, 400),
        (b'{"sentences":["ja"],"beam":' + b"9" * 5000 + b"}", 400),
        (b'{"sentences":["ja"],"length_penalty":NaN}', 422),
        (b'{"sentences":["ja"],"length_penalty":1e999}', 422),
        (b'{"sentences":["a\\u0000b"],"beam":1}', 200),
    ],
)
def test_odd_bodies_are_refused_in_words(site, content, status):
    answer = site.client.post("api/translate", content=content, headers=JSON)
    assert answer.status_code == status, answer.text
    if status != 200:
        assert_refused(answer, status)


def test_other_content_types_and_methods_are_refused(site):
    for kind in ("", "text/plain", "application/x-www-form-urlencoded", "application/jsonp"):
        # what a page elsewhere may send without asking is among them
        headers = {"Content-Type": kind} if kind else {}
        refused = site.client.post("api/translate", content=b'{"sentences":["ja"]}', headers=headers)
        received = repr(kind) if kind else "none"
        assert_refused(refused, 415, f"received {received}", "Content-Type: application/json")
    named = {"Content-Type": "Application/JSON; charset=utf-8"}
    taken = site.client.post("api/translate", content=b'{"sentences":["ja"],"beam":1}', headers=named)
    assert taken.status_code == 200
    assert_refused(site.client.get("api/translate"), 405)
    assert_refused(site.client.get("nowhere"), 404)


def test_limits_have_to_make_sense():
    for limits in ({"beam": 0}, {"seconds": math.nan}, {"seconds": math.inf}, {"queue": -1}):
        (name,) = limits
        with pytest.raises(UserError, match=f"{name}: expected a limit above 0, and finite; received"):
            Limits(**limits)


def test_a_file_that_has_not_changed_is_not_sent_again(site):
    first = site.client.get("static/app.js")
    assert first.headers["content-type"].startswith("text/javascript")
    again = site.client.get("static/app.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
