"""`latentalign serve` as a process: it says where it is, answers, finishes what it began, and ends in order."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading

import httpx
import pytest

from tests.cli.command import assert_mistake, latentalign, untrained_run

PATIENCE = 120
OPTIONS = ("--port", "0", "--threads", "1", "--time-limit", str(PATIENCE))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return untrained_run(tmp_path_factory.mktemp("runs") / "run")


def test_it_answers_and_finishes_what_it_began_before_it_ends(run):
    process = subprocess.Popen(
        [sys.executable, "-m", "latentalign", "serve", run, *OPTIONS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        line = process.stdout.readline()
        address = re.search(r"run \(translation\) at (http://127\.0\.0\.1:\d+/)", line)[1]
        with httpx.Client(base_url=address, timeout=PATIENCE) as client:
            assert client.get("healthz").json()["status"] == "ok"
            answers = []
            body = {"sentences": ["zwei Männer spielen im großen alten Park Fußball ."] * 16, "beam": 10}
            asking = threading.Thread(target=lambda: answers.append(client.post("api/translate", json=body)))
            asking.start()
            while not httpx.get(f"{address}healthz", timeout=PATIENCE).json()["computing"]:
                assert asking.is_alive(), "answered before it could be interrupted"
            process.send_signal(signal.SIGTERM)
            asking.join(PATIENCE)
        assert answers[0].status_code == 200
        assert process.wait(PATIENCE) == 0
        log = process.stderr.read()
        assert "POST /api/translate 200" in log
        assert "Traceback" not in log
        assert "Männer" not in log
    finally:
        process.kill()
        process.communicate()


def test_a_port_in_use_is_told(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert_mistake(latentalign("serve", run, "--port", port), f"port {port}", "--port")


def test_mistakes_are_told(run, tmp_path):
    assert_mistake(latentalign("serve", tmp_path / "missing"), "no such run folder")
    assert_mistake(latentalign("serve", run, "--max-beam", 0), "beam: expected a limit above 0")
    assert_mistake(latentalign("serve", run, "--time-limit", "inf"), "--time-limit: expected a finite number")


@pytest.mark.parametrize("host", ["", " ", "a" * 300, "nowhere.invalid", "127.0.0.1:80"])
def test_a_host_that_cannot_be_is_told(run, host):
    assert_mistake(latentalign("serve", run, "--port", 0, "--host", host), "--host")


@pytest.mark.parametrize("threads", [0, -1, 100_000])
def test_threads_that_cannot_be_are_told(run, threads):
    assert_mistake(latentalign("serve", run, "--threads", threads), f"--threads {threads}: expected 1 to 256")


@pytest.mark.parametrize("port", [-1, 65536, 70000])
def test_a_port_that_cannot_be_is_told(run, port):
    assert_mistake(latentalign("serve", run, "--port", port), f"--port {port}: expected 0")


def test_pictures_are_for_runs_that_look_at_them(run, tmp_path):
    for option in ("--features", "--images"):
        assert_mistake(latentalign("serve", run, option, tmp_path / "missing"), "no such folder")
        assert_mistake(latentalign("serve", run, option, tmp_path), "only VQA runs")


def test_another_host_is_taken_with_a_warning(run, monkeypatch):
    from latentalign.inspector import server

    seen = {}

    def remember(app, listener, *, ready, time_limit):
        seen["address"] = listener.getsockname()[0]
        ready()
        listener.close()

    monkeypatch.setattr(server, "run_server", remember)
    found = latentalign("serve", run, "--host", "0.0.0.0", "--port", 0)
    assert found.code == 0
    assert "reachable from other machines" in found.stderr
    assert "without a password" in found.stderr
    assert seen["address"] == "0.0.0.0"
    quiet = latentalign("serve", run, "--port", 0)
    assert quiet.stderr == ""
    assert seen["address"] == "127.0.0.1"
    assert "http://127.0.0.1:" in quiet.stdout
