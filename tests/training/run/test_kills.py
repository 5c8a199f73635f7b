"""Killed at any moment, a run resumes to exactly what an uninterrupted run gives."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml

from latentalign.cli import main
from latentalign.training.run.checkpoints import list_checkpoints
from tests.training.helpers import BASE, ROOT, call, command, environment, merge, run, same_training
from tests.training.run.test_resume import SETTINGS


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nothing interrupts."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run(folder, **SETTINGS)
    return folder


def write_recipe(folder: Path) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(merge(BASE, SETTINGS)))
    return path


# one server imports everything once, and forks: the processes that are killed begin at once
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["tests.training.copying", "latentalign.training.train", "latentalign.cli.train"]
)
Child = multiprocessing.context.ForkServerProcess


def command_line(errors: Path, *arguments: str) -> None:
    """The command line with the toy task, in a process of its own."""
    descriptor = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    torch.set_num_threads(1)
    sys.argv = ["latentalign", *arguments]
    main()


def start(errors: Path, *arguments: str | Path) -> Child:
    process = FORKS.Process(target=command_line, args=(errors, *map(str, arguments)))
    process.start()
    return process


def newest_step(folder: Path) -> int:
    """The step of the newest checkpoint, 0 without one."""
    return max((int(path.name.split("-")[1]) for path in (folder / "checkpoints").glob("step-*")), default=0)


def wait_for_step_after(step: int, folder: Path, process: Child) -> None:
    """Until there is a newer checkpoint, or the process has ended."""
    deadline = time.monotonic() + 1200
    while newest_step(folder) <= step and process.is_alive():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def kill_after(seconds: float, process: Child) -> int:
    """Kill the process after some time unless it ends by itself, and give its exit code."""
    process.join(seconds)
    process.kill()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def test_kill_nine_and_resume_through_the_command_line(whole: Path, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    process = subprocess.Popen(
        command("train", recipe, "--out", tmp_path / "run"),
        cwd=ROOT,
        env=environment(),
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 240
    while not list_checkpoints(tmp_path / "run") and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    resumed = call("train", "--resume", tmp_path / "run")
    assert resumed.returncode == 0, resumed.stderr
    assert same_training(tmp_path / "run", whole)


@pytest.mark.slow
def test_twenty_kills_at_random_moments(whole: Path, tmp_path: Path) -> None:
    """A quarter of them before the first step (data, reading the checkpoint), the others after the next
    checkpoint: while steps, validations and further checkpoints are under way. So no load of the machine can move all
    of them to where nothing happens."""
    recipe, folder, errors = write_recipe(tmp_path), tmp_path / "run", tmp_path / "errors"
    start(errors, "--version").join()  # until the server has imported everything
    began = time.monotonic()
    process = start(errors, "train", recipe, "--out", tmp_path / "timing")
    wait_for_step_after(0, tmp_path / "timing", process)
    startup = time.monotonic() - began
    process.join()
    assert process.exitcode == 0, errors.read_text()
    stretch = time.monotonic() - began - startup
    moments = random.Random(4)
    kills, finished, caught_training = 0, 0, 0
    while kills < 20:
        before = newest_step(folder)
        process = start(errors, "train", recipe, "--resume", folder)
        early = kills % 4 == 0
        if not early:
            wait_for_step_after(before, folder, process)
        code = kill_after(moments.uniform(0.0, startup if early else 0.5 * stretch), process)
        if code == 0:  # it came to its end: begin once more with the kills that are left
            assert same_training(folder, whole)
            folder.rename(tmp_path / f"finished-{finished}")
            finished += 1
        else:
            assert code == -signal.SIGKILL, errors.read_text()
            kills += 1
            caught_training += 0 < newest_step(folder) < 24
    assert caught_training >= 10, "most kills left a run that was neither unbegun nor complete"
    final = call("train", recipe, "--resume", folder)
    assert final.returncode == 0, final.stderr
    assert same_training(folder, whole)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "during", "after"])
def test_kill_while_a_checkpoint_is_written(whole: Path, tmp_path: Path, moment: str) -> None:
    """The process kills itself around the rename that makes the fourth checkpoint appear, or half-way through it."""
    recipe = write_recipe(tmp_path)
    script = (
        "import os, signal, tests.training.copying as copying\n"
        "import latentalign.files as files\n"
        "from latentalign.cli import main\n"
        "count = [0]\n"
        "replace = os.replace\n"
        "def watched(source, target):\n"
        "    count[0] += str(target).endswith('.ckpt')\n"
        "    if count[0] == 4 and str(target).endswith('.ckpt'):\n"
        f"        moment = {moment!r}\n"
        "        if moment == 'during':\n"
        "            os.truncate(source, os.path.getsize(source) // 2)\n"
        "        if moment == 'after':\n"
        "            replace(source, target)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    replace(source, target)\n"
        "os.replace = watched\n"
        "main()\n"
    )
    arguments = ["train", str(recipe), "--out", str(tmp_path / "run")]
    killed = subprocess.run(
        [command()[0], "-c", script, *arguments],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    resumed = call("train", "--resume", tmp_path / "run")
    assert resumed.returncode == 0, resumed.stderr
    assert same_training(tmp_path / "run", whole)
    assert not list((tmp_path / "run" / "checkpoints").glob(".*")), "what the killed writer left is removed"
