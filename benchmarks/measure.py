"""Time and peak memory of a function, in a process of its own so that no measurement colours the next."""

import json
import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def peak_mebibytes() -> float:
    """The largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _child(
    make: Callable[..., Callable[[], Any]], arguments: dict[str, Any], rounds: int, threads: int, pipe: Any
) -> None:
    import torch

    torch.set_num_threads(threads)
    run = make(**arguments)
    before = peak_mebibytes()
    run()  # the first call pays for allocations and is not timed
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    pipe.send({"seconds": statistics.median(times), "extra_mib": peak_mebibytes() - before})


def measure(
    make: Callable[..., Callable[[], Any]], *, rounds: int = 5, threads: int = 2, **arguments: Any
) -> dict[str, float]:
    """Median seconds of a call and its memory beyond its inputs. `make(**arguments)` returns the call."""
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
        path.write_text(json.dumps({"benchmark": name, **results}, indent=1) + "\n", encoding="utf-8")
        print(f"written: {path}", file=sys.stderr)
