"""A bar on the terminal for commands that take long; nothing where there is none."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int, int | None], None]  # how many are done, and of how many if that is known


@contextmanager
def progress(what: str, *, results_on_stdout: bool = False) -> Iterator[Advance]:
    """Show how far a command is. Results that appear on the same terminal show it themselves."""
    if not sys.stderr.isatty() or (results_on_stdout and sys.stdout.isatty()):
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    # standard output is not touched: results may be written to it while the bar is shown
    with Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=False, refresh_per_second=4
    ) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
