"""Run the command line inside the test's own process, and make run folders without training."""

import contextlib
import io
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from latentalign.cli import main
from latentalign.training.recipe.recipes import build_recipe
from latentalign.training.run.config_file import save_config
from latentalign.training.run.weights import save_model
from tests.translation.tiny import tiny_assets, tiny_model

SIZES = {"embedding_size": 12, "memory_size": 16, "decoder_size": 14, "attention_size": 10, "hidden_size": 12}


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    stdout: str
    stderr: str


def latentalign(*arguments: str | Path | float, stdin: str | bytes | None = None) -> Outcome:
    """Run one command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(sys, "argv", ["latentalign", *map(str, arguments)])
        if stdin is not None:
            patch.setattr(sys, "stdin", stack.enter_context(_pipe(stdin)))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        try:
            main()
            code = 0
        except SystemExit as exit_:
            code = int(exit_.code or 0)
    return Outcome(code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def _pipe(content):
    read, write = os.pipe()
    with os.fdopen(write, "wb") as stream:
        stream.write(content.encode() if isinstance(content, str) else content)
    with os.fdopen(read, "r", encoding="utf-8") as stream:
        yield stream


# one server imports everything once, and forks: further processes begin at once
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.training.copying", "latentalign.training.train"])
Child = multiprocessing.context.ForkServerProcess


def start(
    *arguments: str | Path | float,
    stdin: str | Path = os.devnull,
    stdout: str | Path = os.devnull,
    stderr: str | Path = os.devnull,
) -> Child:
    """Run one command in a process of its own, with these files (or named pipes) as its standard streams."""
    streams = (str(stdin), str(stdout), str(stderr))
    process = FORKS.Process(target=_enter, args=(tuple(map(str, arguments)), streams))
    process.start()
    return process


def _enter(arguments: tuple[str, ...], streams: tuple[str, str, str]) -> None:
    # a shell ignores Ctrl-C for what it runs behind it, and nohup ignores SIGHUP
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    write = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for number, (path, flags) in enumerate(zip(streams, (os.O_RDONLY, write, write), strict=True)):
        descriptor = os.open(path, flags)
        os.dup2(descriptor, number)
        os.close(descriptor)
    # the server's own know nothing of these files
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
        for number, mode in enumerate(("r", "w", "w"))
    )
    torch.set_num_threads(1)
    sys.argv = ["latentalign", *arguments]
    main()


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until something has come about; fail if it does not."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)


def assert_mistake(outcome: Outcome, *parts: str) -> None:
    """A user's mistake: exit code 2, nothing on stdout, one line on stderr that names it."""
    assert outcome.code == 2
    assert outcome.stdout == ""
    assert outcome.stderr.count("\n") == 1
    assert outcome.stderr.startswith("latentalign: ")
    for part in parts:
        assert part in outcome.stderr, outcome.stderr


def untrained_run(folder: Path, *, objective: str = "variational", **settings: object) -> Path:
    """A run folder as training writes it, with the weights of a model nobody trained."""
    folder.mkdir(parents=True)
    assets = tiny_assets()
    posterior = objective != "soft"
    model = tiny_model(assets, posterior=posterior, **settings).float()
    sizes = {**SIZES, "inference_network": {"memory_size": 8}, **settings}
    files = {"source": "train.de", "target": "train.en"}
    values = {
        "task": "translation",
        "data": {"train": files, "valid": files, "max_length": 60},
        "model": sizes,
        "objective": objective,
    }
    save_config(build_recipe(values), folder)
    assets.save(folder)
    save_model(model, folder)
    return folder
