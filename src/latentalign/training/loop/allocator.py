"""How this process treats memory it no longer needs."""

import ctypes
import sys

# parameters of glibc's mallopt, from malloc.h
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 2**30


def keep_freed_memory() -> bool:
    """Use freed memory again instead of giving it back to the system; whether this system's allocator can.

    A training step frees tens of megabytes and asks for as much again. By default large blocks come from the system
    every time, which has to clear them page by page: a twentieth of a step. For processes that do nothing but train.
    """
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # not glibc
        return False
    return all(mallopt(name, KEPT_BYTES) == 1 for name in (TRIM_THRESHOLD, MMAP_THRESHOLD))
