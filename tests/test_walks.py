"""The walks of docs/architecture.md are true: a training step, a translation and an alignment, file by file.

Every file of the package that is entered on the way is either a stop of the walk or one of its helpers. A stop decides
what happens next. A helper does one thing to its arguments and gives the result back: it never calls a stop.
"""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import latentalign as la
from latentalign.training.loop.after_step import AfterEachStep

PACKAGE = Path(la.__file__).parent
FROZEN = Path(__file__).parent / "frozen"
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
LIMITS = {"A training step": 10, "A translation": 12, "An alignment": 8}
SCHEDULE = [{"objective": {"name": "variational", "estimator": {"name": "enumerate", "prune": 0.01}}}]


class Trace:
    """The files of the package that are entered, and from which of them each is entered."""

    def __init__(self) -> None:
        self.calls: dict[str, set[str]] = {}  # file -> the files that called it

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and (name := _name(frame)) is not None:
            callers = self.calls.setdefault(name, set())
            back = frame.f_back
            while back is not None and (caller := _name(back)) is None:
                back = back.f_back
            if back is not None and caller is not None and caller != name:
                callers.add(caller)


def _name(frame: FrameType) -> str | None:
    path = Path(frame.f_code.co_filename)
    inside = frame.f_code.co_name != "<module>" and path.is_relative_to(PACKAGE)
    return path.relative_to(PACKAGE).as_posix() if inside else None


@contextmanager
def tracing(trace: Trace) -> Iterator[None]:
    before = sys.getprofile()
    sys.setprofile(trace)
    try:
        yield
    finally:
        sys.setprofile(before)


def trace_step(folder: Path) -> Trace:
    """The third step of a training: from the end of the second to its own end, neither logged nor saved."""
    trace, original = Trace(), AfterEachStep.on_train_batch_end

    def watched(self: AfterEachStep, trainer: Any, module: Any, *rest: Any) -> None:
        original(self, trainer, module, *rest)
        sys.setprofile(trace if module.step == 2 else None)

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(FROZEN)
        patch.setattr(AfterEachStep, "on_train_batch_end", watched)
        resolved = {"schedule": SCHEDULE, "training.epochs": 2, "training.validate_every": None}
        la.train(FROZEN / "translation.yaml", out=folder, set=resolved, quiet=True)
    return trace


def trace_translation() -> Trace:
    run, trace = la.load(FROZEN / "translation"), Trace()
    run.translate(["Paul singt ."], beam=2)  # what is imported or built once is not part of the walk
    with tracing(trace):
        run.translator(beam=2, max_length_factor=0.5).translate(["Paul singt ."])
    return trace


def trace_alignment() -> Trace:
    run, trace = la.load(FROZEN / "translation"), Trace()
    pairs = [("Paul singt .", "Paul sings .")]
    run.align(pairs)
    with tracing(trace):
        run.align(pairs)
    return trace


def walk_of(title: str) -> tuple[list[str], set[str]]:
    """Stops and helpers as the page lists them."""
    section = re.search(rf"^### {title}\n(.*?)(?=^##|\Z)", PAGE.read_text(encoding="utf-8"), re.S | re.M)
    assert section is not None, f"docs/architecture.md has no walk {title!r}"
    stops = re.findall(r"^\d+\. `([\w/]+\.py)`", section[1], re.M)
    helpers = re.search(r"^Helpers: (.*?)\n\n", section[1] + "\n\n", re.S | re.M)
    return stops, set() if helpers is None else set(re.findall(r"`([\w/]+\.py)`", helpers[1]))


@pytest.mark.parametrize(
    ("title", "follow"),
    [
        ("A training step", trace_step),
        ("A translation", lambda folder: trace_translation()),
        ("An alignment", lambda folder: trace_alignment()),
    ],
)
def test_a_walk_is_as_the_page_says(title: str, follow: Callable[[Path], Trace], tmp_path: Path) -> None:
    calls = follow(tmp_path / "run").calls
    stops, helpers = walk_of(title)
    assert set(stops) | helpers == set(calls), "the page lists the files that are entered, and no others"
    assert not set(stops) & helpers
    assert len(stops) <= LIMITS[title]
    for number, stop in enumerate(stops):
        # lightning, or the test itself, enters some of them; a stop is never reached from one further down alone
        inside = calls[stop] & {*stops, *helpers}
        assert not inside or inside & set(stops[:number]), f"{stop} is entered before its turn"
    through = {(helper, stop) for stop in stops for helper in calls[stop] & helpers}
    assert through == set(), "a helper that calls a stop is a stop itself"
