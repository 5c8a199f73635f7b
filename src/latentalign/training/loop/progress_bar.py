"""The bar on stderr: how far, how fast, what the bound does, and how long it will still take."""

import sys
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from latentalign.training.run.journal import RunLog

QUIET_SECONDS = 30.0  # between two lines where there is no terminal for a bar


class Progress:
    """A bar on a terminal, now and then a line elsewhere; nothing on processes other than the first."""

    def __init__(
        self, log: RunLog, *, active: bool = True, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.log = log
        self.active = active
        self.clock = clock
        self.total = 0.0
        self._bar: Bar | None = None
        self._task: Any = None
        self._before: Any = None
        self._first = (0.0, 0.0)  # clock and position at the start of this session
        self._last = 0.0
        self._spoke = 0.0

    def start(self, position: float, total: float) -> None:
        """Begin at a position in epochs."""
        self.total = total
        now = self.clock()
        self._first, self._last, self._spoke = (now, position), now, now
        if self.active and self.log.echo and sys.stderr.isatty():
            console = Console(stderr=True)
            self._bar = Bar(
                TextColumn("epoch {task.completed:.2f}/{task.total:g}"),
                BarColumn(bar_width=20),
                TextColumn("{task.description}"),
                console=console,
                transient=True,
                refresh_per_second=2,
            )
            self._task = self._bar.add_task("", total=total)
            self._bar.update(self._task, completed=position)
            self._bar.start()
            self._before = self.log.write_line
            self.log.write_line = lambda text: console.print(text, highlight=False, markup=False)

    def update(self, position: float, averages: dict[str, float], rate: float) -> dict[str, float]:
        """Show the averages since the last update; gives them back with the speed, for the loggers."""
        now = self.clock()
        tokens_per_second = averages.get("outputs", 0.0) / max(now - self._last, 1e-9)
        self._last = now
        left = self.seconds_left(position)
        text = (
            f"{tokens_per_second:,.0f} tokens/s, bound {averages.get('bound', 0.0):.3f}, "
            f"KL {averages.get('kl', 0.0):.3f}, prior entropy {averages.get('prior_entropy', 0.0):.3f}, "
            f"{format_seconds(left)} left"
        )
        if self._bar is not None:
            self._bar.update(self._task, completed=position, description=text)
        elif self.active and now - self._spoke >= QUIET_SECONDS:
            self._spoke = now
            self.log(f"epoch {position:.2f}/{self.total:g}: {text}")
        values = {name: value for name, value in averages.items() if name != "outputs"}
        return {**values, "tokens_per_second": tokens_per_second, "learning_rate": rate}

    def rest(self) -> None:
        """Something else took the time since the last update: it does not count as slow training."""
        self._last = self.clock()

    def seconds_left(self, position: float) -> float:
        """From the speed of this session."""
        started, first = self._first
        done = position - first
        return (self.clock() - started) / done * max(self.total - position, 0.0) if done > 0 else 0.0

    def stop(self) -> None:
        """Take the bar off the screen."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
            self.log.write_line = self._before


def format_seconds(seconds: float) -> str:
    """1:02:03, or 2:03 below an hour."""
    whole = int(seconds + 0.5)
    hours, rest = divmod(whole, 3600)
    minutes, seconds_left = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{seconds_left:02d}" if hours else f"{minutes}:{seconds_left:02d}"
