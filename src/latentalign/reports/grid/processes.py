"""Jobs that wait for each other, so many at once, each in a process of its own with one thread."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentalign.errors import UserError
from latentalign.training.run.stopping import Interrupted

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Job:
    """One piece of work; `needs` are names of jobs that have to succeed before it."""

    name: str
    needs: tuple[str, ...] = ()


def run_here(jobs: Sequence[Job], work: Callable[[Job], None], say: Callable[[str], None]) -> None:
    """Do jobs one after the other in this process."""
    for job in in_order(jobs):
        say(f"{job.name}: begins")
        work(job)
        say(f"{job.name}: done")


def run_apart(
    jobs: Sequence[Job],
    command: Callable[[Job], list[str]],
    *,
    at_once: int,
    logs: Path,
    say: Callable[[str], None],
    done: Callable[[Job], None],
) -> None:
    """Do jobs in processes of their own, `at_once` side by side; `done` is called as each succeeds.

    When a job fails, those that need it are left out and the others go on; the failure is raised at the end.
    A signal is handed on to the processes, which save their state.
    """
    waiting = in_order(jobs)
    running: dict[Job, subprocess.Popen[Any]] = {}
    succeeded: set[str] = set()
    failed: dict[str, str] = {}
    known = {job.name for job in jobs}
    logs.mkdir(parents=True, exist_ok=True)
    before = _take_sigterm()
    try:
        while waiting or running:
            for job in [job for job in waiting if any(need in failed for need in job.needs)]:
                waiting.remove(job)
                failed[job.name] = f"needs {next(need for need in job.needs if need in failed)}, which failed"
            for job in list(waiting):
                ready = all(need in succeeded or need not in known for need in job.needs)
                if ready and len(running) < at_once:
                    waiting.remove(job)
                    say(f"{job.name}: begins, log in {logs / job.name}.log")
                    running[job] = _start(command(job), logs / f"{job.name}.log")
            for job, process in list(running.items()):
                if process.poll() is not None:
                    del running[job]
                    if process.returncode == 0:
                        succeeded.add(job.name)
                        say(f"{job.name}: done")
                        done(job)
                    else:
                        failed[job.name] = _last_words(logs / f"{job.name}.log", process.returncode)
                        say(f"{job.name}: failed: {failed[job.name]}")
            time.sleep(POLL_SECONDS if running else 0.0)
    except KeyboardInterrupt:
        raise Interrupted("interrupted; what was trained is kept, the same command goes on") from None
    finally:
        _stop(list(running.values()))
        if before is not None:
            signal.signal(signal.SIGTERM, before)
    if failed:
        name, reason = next(iter(failed.items()))
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        raise UserError(f"{name}{more}: {reason}; its log is {logs / name}.log")


def in_order(jobs: Sequence[Job]) -> list[Job]:
    """Every job after those it needs, otherwise as they were given."""
    by_name = {job.name: job for job in jobs}
    ordered: list[Job] = []

    def visit(job: Job) -> None:
        if job in ordered:
            return
        for need in job.needs:
            if need in by_name:
                visit(by_name[need])
        ordered.append(job)

    for job in jobs:
        visit(job)
    return ordered


def _start(command: list[str], log: Path) -> "subprocess.Popen[Any]":
    with log.open("ab") as stream:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env={**os.environ, **ONE_THREAD},
            start_new_session=True,  # a signal from the terminal comes to us, and we hand it on
        )


def _take_sigterm() -> Any:
    """Let SIGTERM end the loop as ctrl-C does: processes must not outlive it. The handler that was there before."""
    if threading.current_thread() is not threading.main_thread():
        return None
    return signal.signal(signal.SIGTERM, signal.default_int_handler) or signal.SIG_DFL


def _stop(processes: list["subprocess.Popen[Any]"]) -> None:
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        process.wait()


def _last_words(log: Path, code: int) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1].strip().removeprefix("latentalign: ")[:300] if lines else f"exit code {code}"


def python(*arguments: str) -> list[str]:
    """A command line for this interpreter."""
    return [sys.executable, *arguments]
