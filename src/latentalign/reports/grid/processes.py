"""Jobs that wait for each other, so many at once, each in a process of its own with one thread."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
    logs.mkdir(parents=True, exist_ok=True)
    processes = _Processes(command, at_once=at_once, logs=logs, say=say, done=done)
    with _sigterm_as_interrupt():
        try:
            processes.run(in_order(jobs))
        except KeyboardInterrupt:
            raise Interrupted("interrupted; what was trained is kept, the same command goes on") from None
        finally:
            processes.stop()
    processes.raise_failure()


class _Processes:
    """Processes of jobs. Every job is waiting, then running, then in `outcomes`."""

    def __init__(
        self,
        command: Callable[[Job], list[str]],
        *,
        at_once: int,
        logs: Path,
        say: Callable[[str], None],
        done: Callable[[Job], None],
    ) -> None:
        self.command, self.at_once, self.logs, self.say, self.done = command, at_once, logs, say, done
        self.running: dict[Job, subprocess.Popen[Any]] = {}
        self.outcomes: dict[str, str | None] = {}  # name -> why it failed; None: it is done

    def run(self, jobs: Sequence[Job]) -> None:
        """All of the jobs, each as soon as it can be; every job stands after those it needs."""
        names = {job.name for job in jobs}
        waiting = list(jobs)
        while waiting or self.running:
            waiting = [job for job in waiting if not self._begin(job, names)]
            self._collect()
            time.sleep(POLL_SECONDS if self.running else 0.0)

    def _begin(self, job: Job, names: set[str]) -> bool:
        """Start a job, or leave it out if one that it needs has failed; False: it has to wait."""
        needs = [need for need in job.needs if need in names]
        failed = [need for need in needs if self.outcomes.get(need) is not None]
        if failed:
            self.outcomes[job.name] = f"needs {failed[0]}, which failed"
            return True
        if len(self.running) == self.at_once or any(need not in self.outcomes for need in needs):
            return False
        self.say(f"{job.name}: begins, log in {self._log(job.name)}")
        self.running[job] = _start(self.command(job), self._log(job.name))
        return True

    def _collect(self) -> None:
        """Note how the processes ended that have."""
        for job in [job for job, process in self.running.items() if process.poll() is not None]:
            code = self.running.pop(job).returncode
            self.outcomes[job.name] = None if code == 0 else _last_words(self._log(job.name), code)
            if code == 0:
                self.say(f"{job.name}: done")
                self.done(job)
            else:
                self.say(f"{job.name}: failed: {self.outcomes[job.name]}")

    def stop(self) -> None:
        """End what still runs, and wait for it."""
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        for process in self.running.values():
            process.wait()

    def raise_failure(self) -> None:
        """The first failure, if there was one."""
        failed = [(name, reason) for name, reason in self.outcomes.items() if reason is not None]
        if failed:
            name, reason = failed[0]
            more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
            raise UserError(f"{name}{more}: {reason}; its log is {self._log(name)}")

    def _log(self, name: str) -> Path:
        return self.logs / f"{name}.log"


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


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt as ctrl-C does: processes must not outlive the one that started them."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may take signals
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _last_words(log: Path, code: int) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1].strip().removeprefix("latentalign: ")[:300] if lines else f"exit code {code}"


def python(*arguments: str) -> list[str]:
    """A command line for this interpreter."""
    return [sys.executable, *arguments]
