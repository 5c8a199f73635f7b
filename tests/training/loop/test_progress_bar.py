"""The bar: speed, time left, and silence where it does not belong."""

import pytest

from latentalign.training.loop.progress_bar import QUIET_SECONDS, Progress, format_seconds
from latentalign.training.run.journal import RunLog


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def make(active: bool = True) -> tuple[Progress, Clock, list[str]]:
    log, clock, said = RunLog(active=active), Clock(), []
    log.write_line = said.append  # type: ignore[assignment]
    return Progress(log, active=active, clock=clock), clock, said


def test_speed_and_time_left_count_this_sitting_only() -> None:
    progress, clock, _ = make()
    progress.start(4.0, 10.0)
    clock.now += 10
    values = progress.update(5.0, {"bound": -2.0, "kl": 0.5, "prior_entropy": 1.0, "outputs": 500.0}, 0.1)
    assert values["tokens_per_second"] == pytest.approx(50.0)
    assert values["learning_rate"] == 0.1
    assert "outputs" not in values
    assert progress.seconds_left(5.0) == pytest.approx(50.0)


def test_validation_does_not_count_as_slow_training() -> None:
    progress, clock, _ = make()
    progress.start(0.0, 1.0)
    clock.now += 100
    progress.rest()
    clock.now += 2
    assert progress.update(0.5, {"outputs": 10.0}, 0.1)["tokens_per_second"] == pytest.approx(5.0)


def test_without_a_terminal_there_is_a_line_now_and_then() -> None:
    progress, clock, said = make()
    progress.start(0.0, 2.0)
    clock.now += 1
    progress.update(0.1, {"bound": -1.5, "outputs": 5.0}, 0.1)
    assert said == []
    clock.now += QUIET_SECONDS
    progress.update(0.5, {"bound": -1.25, "kl": 0.25, "prior_entropy": 0.75, "outputs": 300.0}, 0.1)
    assert len(said) == 1
    assert said[0].startswith("epoch 0.50/2: 10 tokens/s, bound -1.250, KL 0.250, prior entropy 0.750, ")
    assert said[0].endswith("1:33 left")
    progress.stop()


def test_other_processes_say_nothing() -> None:
    progress, clock, said = make(active=False)
    progress.start(0.0, 2.0)
    clock.now += 2 * QUIET_SECONDS
    progress.update(0.5, {"outputs": 300.0}, 0.1)
    progress.log("something")
    assert said == []


def test_on_a_terminal_there_is_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "140")
    progress, clock, _ = make()
    before = progress.log.write_line
    progress.start(0.0, 2.0)
    clock.now += 1
    progress.update(0.5, {"bound": -1.0, "outputs": 70.0}, 0.1)
    assert progress.log.write_line is not before, "lines of the log go above the bar"
    progress.log("a line [with brackets]")
    progress.stop()
    assert progress.log.write_line is before
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "a line [with brackets]" in shown.err
    assert "70 tokens/s" in shown.err


def test_times() -> None:
    assert [format_seconds(value) for value in (0, 59.6, 61, 3600, 3725)] == [
        "0:00",
        "1:00",
        "1:01",
        "1:00:00",
        "1:02:05",
    ]
