"""Numbers too small for a processor to multiply at full speed."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def denormals_flushed() -> Iterator[None]:
    """Take numbers below 1e-38 for 0, in this thread and in those it starts; afterwards as it was before.

    A sharp alignment has responsibilities of that size. They change no sum, but a product with one of them can take a
    hundred times as long: half of a step of a trained monotone chain.
    """
    before = _are_flushed()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def _are_flushed() -> bool:
    return bool(torch.full((1,), torch.finfo(torch.float32).tiny).mul(0.5) == 0)
