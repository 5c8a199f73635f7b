"""Jobs wait for what they need, run side by side, and fail without taking the others along."""

import os
import signal
import subprocess
import sys
import time

import pytest

from latentalign.errors import UserError
from latentalign.reports.grid.processes import Job, in_order, run_apart, run_here
from latentalign.training.run.stopping import Interrupted


def test_jobs_come_after_what_they_need():
    jobs = [Job("c", ("b",)), Job("a"), Job("b", ("a", "elsewhere"))]
    assert [job.name for job in in_order(jobs)] == ["a", "b", "c"]
    done = []
    run_here(jobs, lambda job: done.append(job.name), lambda text: None)
    assert done == ["a", "b", "c"]


def run(tmp_path, jobs, scripts, at_once=2):
    said, done = [], []
    try:
        run_apart(
            jobs,
            lambda job: [sys.executable, "-S", "-c", scripts[job.name]],
            at_once=at_once,
            logs=tmp_path / "logs",
            say=said.append,
            done=lambda job: done.append(job.name),
        )
    finally:
        run.said, run.done = said, done
    return done


def test_jobs_run_apart_with_one_thread_and_a_log_each(tmp_path):
    here = f"open({str(tmp_path / 'a')!r}, 'w').write('x')"
    there = f"import os; print(os.environ['OMP_NUM_THREADS'], open({str(tmp_path / 'a')!r}).read())"
    assert run(tmp_path, [Job("b", ("a",)), Job("a")], {"a": here, "b": there}) == ["a", "b"]
    assert (tmp_path / "logs" / "b.log").read_text() == "1 x\n"


def test_so_many_at_once(tmp_path):
    script = (
        f"import os, time; p = {str(tmp_path)!r}; n = str(os.getpid()); open(p + '/running' + n, 'w').close(); "
        "time.sleep(0.5); print(sum(f.startswith('running') for f in os.listdir(p))); "
        "os.remove(p + '/running' + n)"
    )
    jobs = [Job(name) for name in "abcd"]
    run(tmp_path, jobs, dict.fromkeys("abcd", script), at_once=2)
    seen = [int((tmp_path / "logs" / f"{name}.log").read_text()) for name in "abcd"]
    assert max(seen) == 2  # no more, and not one after the other


def test_a_failure_leaves_out_what_needs_it_and_nothing_else(tmp_path):
    jobs = [Job("bad"), Job("child", ("bad",)), Job("grandchild", ("child",)), Job("good")]
    scripts = dict.fromkeys(("child", "grandchild", "good"), "pass")
    scripts["bad"] = "import sys; sys.stderr.write('first\\nlatentalign: no such file\\n'); sys.exit(2)"
    with pytest.raises(UserError, match=r"bad \(and 2 more\): no such file; its log is .*bad.log"):
        run(tmp_path, jobs, scripts)
    assert run.done == ["good"]


def test_sigterm_reaches_the_processes_and_they_are_waited_for(tmp_path):
    script = (
        "import signal, sys, time\n"
        f"signal.signal(signal.SIGTERM, lambda *a: (open({str(tmp_path / 'saved')!r}, 'w').close(), sys.exit(75)))\n"
        f"open({str(tmp_path / 'ready')!r}, 'w').close()\n"
        "time.sleep(60)\n"
    )
    killer = (
        f"import os, signal, time\nwhile not os.path.exists({str(tmp_path / 'ready')!r}): time.sleep(0.05)\n"
        f"os.kill({os.getpid()}, signal.SIGTERM)"
    )
    helper = subprocess.Popen([sys.executable, "-S", "-c", killer])
    before = signal.getsignal(signal.SIGTERM)
    started = time.monotonic()
    with pytest.raises(Interrupted, match="the same command goes on"):
        run(tmp_path, [Job("long")], {"long": script})
    helper.wait()
    assert (tmp_path / "saved").exists()
    assert time.monotonic() - started < 50
    assert signal.getsignal(signal.SIGTERM) == before
