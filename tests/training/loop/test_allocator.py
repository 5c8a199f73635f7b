"""Freed memory is used again: few new pages once a step has been taken."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys, torch
from latentalign.training.loop.allocator import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def steps():
    for _ in range(10):
        for megabytes in (40, 64, 48):  # more than the allocator keeps by itself
            torch.empty(megabytes * 2**18).fill_(1.0)

if sys.argv[1] == "keep" and not keep_freed_memory():
    sys.exit(3)
steps()
before = faults()
steps()
print(faults() - before)
"""


def new_pages(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode == 3:
        pytest.skip("this system's allocator cannot be told")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted on Linux")
def test_freed_memory_is_used_again() -> None:
    assert new_pages("keep") < 0.1 * new_pages("plain")
