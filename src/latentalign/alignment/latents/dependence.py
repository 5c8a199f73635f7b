"""Which of the T steps of a latent depend on each other: none, or all as one sequence.

Objectives return one number a step, [B,T]. Where the steps are independent, a step's number is about that step alone.
Where they are one sequence, numbers belong to prefixes: what is reported for step t is the increment from the prefix
before t to the prefix up to t, so that the numbers still add up to that of the whole sequence.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


class Dependence(ABC):
    """Sums over the steps that belong together; the last axis is T."""

    @abstractmethod
    def rewards_to_go(self, rewards: Tensor) -> Tensor:
        """All rewards that a choice at step t has an influence on, [K,B,T] -> [K,B,T]."""

    @abstractmethod
    def prefixes(self, terms: Tensor) -> Tensor:
        """Sum of the terms of the sequence up to and including step t, […,T] -> […,T]."""

    @abstractmethod
    def increments(self, totals: Tensor) -> Tensor:
        """What step t adds to numbers of prefixes, […,T] -> […,T]; the inverse of `prefixes`."""

    @abstractmethod
    def weights_before(self, log_f: Callable[[], Tensor], shape: torch.Size) -> Tensor:
        """Weights of K samples before step t is observed, [K,B,T], with a sum of 1 over K."""

    @abstractmethod
    def joined(self, other: "Dependence") -> "Dependence":
        """The dependence of two latents taken together: one that links steps links them for both."""


@dataclass(frozen=True)
class IndependentSteps(Dependence):
    """Every step is a sequence of its own."""

    def rewards_to_go(self, rewards: Tensor) -> Tensor:
        return rewards

    def prefixes(self, terms: Tensor) -> Tensor:
        return terms

    def increments(self, totals: Tensor) -> Tensor:
        return totals

    def weights_before(self, log_f: Callable[[], Tensor], shape: torch.Size) -> Tensor:
        return torch.full(shape, 1 / shape[0])

    def joined(self, other: Dependence) -> Dependence:
        return other


@dataclass(frozen=True)
class SequentialSteps(Dependence):
    """The real steps of an example are one sequence; padding adds nothing."""

    steps: Tensor  # [B,T] bool, True = real

    def rewards_to_go(self, rewards: Tensor) -> Tensor:
        return self._real(rewards).flip(-1).cumsum(dim=-1).flip(-1)

    def prefixes(self, terms: Tensor) -> Tensor:
        return self._real(terms).cumsum(dim=-1)

    def increments(self, totals: Tensor) -> Tensor:
        before = totals.roll(1, dims=-1).index_fill(-1, totals.new_zeros(1).long(), 0.0)
        return self._real(totals - before)

    def weights_before(self, log_f: Callable[[], Tensor], shape: torch.Size) -> Tensor:
        terms = self._real(log_f())
        return (terms.cumsum(dim=-1) - terms).softmax(dim=0)

    def joined(self, other: Dependence) -> Dependence:
        return self

    def _real(self, values: Tensor) -> Tensor:
        return values.masked_fill(~self.steps, 0.0)
