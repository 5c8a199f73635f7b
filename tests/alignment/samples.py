"""Samples that are chosen instead of drawn, so that a test can go through all of them."""

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from latentalign.alignment import Categorical


class Chosen:
    """Replaces `Categorical.sample`; remembers which distribution was asked for how many samples."""

    def __init__(self) -> None:
        self.positions: Tensor | None = None
        self.asked: list[tuple[Categorical, int]] = []

    def sample(self, distribution: Categorical, samples: int) -> Tensor:
        assert self.positions is not None
        self.asked.append((distribution, samples))
        return self.positions


@contextmanager
def chosen_samples() -> Iterator[Chosen]:
    """While this is open, every categorical returns `Chosen.positions`."""
    chosen = Chosen()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Categorical, "sample", lambda self, n, generator=None: chosen.sample(self, n))
        yield chosen


def all_samples(distribution: Categorical, k: int) -> Iterator[tuple[Tensor, float]]:
    """Every [K,1,T] tensor of positions that k samples of a batch of one can be, with its probability."""
    probs = distribution.probs.detach()[0].tolist()  # [T][S]
    steps = range(len(probs))
    supports = [[i for i, p in enumerate(row) if p > 0] for row in probs]
    for choice in itertools.product(*(supports[t] for _ in range(k) for t in steps)):
        chance = math.prod(probs[n % len(probs)][i] for n, i in enumerate(choice))
        yield torch.tensor(choice).reshape(k, 1, len(probs)), chance
