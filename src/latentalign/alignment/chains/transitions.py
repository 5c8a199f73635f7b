"""How a chain may move: the score r(k, i) of a step from position k to position i, as sums that a filter needs.

Transitions are plain tensors; a module that makes them (`movement.py`) owns what is learnt. Probabilities are
logarithms throughout, and LOG_ZERO stands for log 0: unlike −inf it can be subtracted.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

LOG_ZERO = -1e30
NOTHING = -1e29  # what is below it has probability 0


class Transitions(ABC):
    """Scores r(k, i) between S positions; vectors v are [B,S] or [B,T,S] of logarithms in float64."""

    @property
    @abstractmethod
    def positions(self) -> int:
        """S."""

    @property
    def pairs(self) -> Tensor | None:
        """The scores [S,S] or [B,S,S], 0 where they are forbidden; None where all are 0."""
        return None

    @property
    def learnt(self) -> Tensor | None:
        """The matrix [S,S] or [B,S,S] that a gradient goes to; None where nothing is learnt."""
        return None

    @property
    def allowed(self) -> Tensor | None:
        """Which pairs are allowed, [S,S] or [B,S,S] bool; None where all are."""
        return None

    @property
    @abstractmethod
    def can_stay(self) -> bool:
        """Whether every position may follow itself."""

    @abstractmethod
    def arrive(self, v: Tensor) -> Tensor:
        """log Σ_k e^{v(k)} R(k,i) for every i."""

    @abstractmethod
    def leave(self, v: Tensor) -> Tensor:
        """log Σ_i R(k,i) e^{v(i)} for every k."""

    @abstractmethod
    def counts(self, source: Tensor, destination: Tensor) -> Tensor:
        """Σ_t e^{source_t(k)} R(k,i) e^{destination_t(i)} for [B,T,S] each: [B,S,S]."""

    @abstractmethod
    def rows(self, k: Tensor) -> Tensor:
        """r(k, ·) for positions k [K,B]: [K,B,S], LOG_ZERO where forbidden."""

    def expected(self, source: Tensor, destination: Tensor, pairs: Tensor) -> Tensor:
        """Σ_{k,i} e^{source_t(k)} R(k,i) e^{destination_t(i)} pairs(k,i) of every step, [B,T], the obvious way.

        One step at a time, computed again in the backward pass: nothing of size [B,T,S,S] is kept.
        """
        matrix = self.dense()

        def one(k: Tensor, i: Tensor) -> Tensor:
            return ((k[:, :, None] + matrix + i[:, None]).exp() * pairs).sum(dim=(-1, -2))

        steps = zip(source.unbind(dim=1), destination.unbind(dim=1), strict=True)
        return torch.stack([checkpoint(one, k, i, use_reentrant=False) for k, i in steps], dim=1)

    def renewed(self) -> "Transitions":
        """The same, to be differentiated once more: nothing of an earlier graph is remembered."""
        return self

    @abstractmethod
    def detach(self) -> "Transitions":
        """The same, cut off from the graph."""

    @abstractmethod
    def dense(self) -> Tensor:
        """The whole matrix [S,S] or [B,S,S], LOG_ZERO where forbidden."""

    @property
    @abstractmethod
    def device(self) -> torch.device: ...

    @abstractmethod
    def can_leave(self, possible: Tensor) -> Tensor:
        """From which positions one of the possible positions [B,S] bool can be reached, [B,S] bool.

        Asked only where some pairs are forbidden.
        """

    @abstractmethod
    def can_arrive(self, possible: Tensor) -> Tensor:
        """Which positions can be reached from one of the possible positions [B,S] bool, [B,S] bool."""
