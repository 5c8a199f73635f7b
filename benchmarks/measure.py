"""Time and peak memory of a function, in a process of its own so that no measurement colours the next."""

import contextlib
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from latentalign.reports.grid.step_cost import peak_memory
from latentalign.training.loop.allocator import keep_freed_memory
from latentalign.training.run.environment import git_revision

LONG = 10.0  # seconds; a call that takes longer is made once


def forget_peak() -> None:
    """Let the largest memory so far be what is in use now, where the system can do so."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _child(
    make: Callable[..., Callable[[], Any]], arguments: dict[str, Any], rounds: int, threads: int, pipe: Any
) -> None:
    import torch

    torch.set_num_threads(threads)
    keep_freed_memory()
    run = make(**arguments)
    forget_peak()
    before = peak_memory()
    times = []
    start = time.perf_counter()
    run()  # the first call pays for allocations and is not timed,
    first = time.perf_counter() - start
    if first > LONG or rounds == 0:  # unless that is nothing beside its length
        times, rounds = [first], 0
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    peak = peak_memory()
    pipe.send({"seconds": statistics.median(times), "extra_mib": peak - before, "peak_mib": peak})


def measure(
    make: Callable[..., Callable[[], Any]], *, rounds: int = 5, threads: int = 2, **arguments: Any
) -> dict[str, float]:
    """Median seconds of a call, its memory beyond its inputs, and the largest memory of the whole process.

    `make(**arguments)` returns the call.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(make, arguments, rounds, threads, sender))
    process.start()
    sender.close()
    try:
        result: dict[str, float] = receiver.recv()
    except EOFError:
        raise RuntimeError(f"the measurement of {arguments} ended without a result") from None
    finally:
        process.join()
    return result


def report(name: str, results: dict[str, Any], path: Path | None) -> None:
    """Write results as JSON where asked to."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            json.dumps({"revision": git_revision(), "benchmark": name, **results}, indent=1) + "\n",
            encoding="utf-8",
        )
        print(f"written: {path}", file=sys.stderr)
