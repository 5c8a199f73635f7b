"""Transitions by any matrix of scores."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from latentalign.alignment.chains.transitions import LOG_ZERO, Transitions
from latentalign.alignment.errors import NonFiniteError, ShapeError

# largest range of r for which sums of exponentials in float64 lose nothing: see `MatrixTransitions`
SAFE_RANGE = 250.0


@dataclass(frozen=True)
class MatrixTransitions(Transitions):
    """Any scores [S,S], or [B,S,S] for each example its own; −inf forbids a pair.

    Sums over positions are matrix products of exponentials where that is exact: in float64, with all scores finite and
    within SAFE_RANGE. Then every position reaches every other with a factor of at least e^−250, so a term that
    underflows (below e^−745) is smaller than the sum by e^−245 at least, whatever the outputs say later. Elsewhere the
    obvious way is taken: the sum of all S × S terms in logarithms, step by step.
    """

    matrix: Tensor
    obvious: bool = False  # take the obvious way always: slow, for comparison

    def __post_init__(self) -> None:
        if self.matrix.dim() not in (2, 3) or self.matrix.shape[-1] != self.matrix.shape[-2]:
            raise ShapeError(
                f"transitions: expected a matrix [S,S] or [B,S,S], received {list(self.matrix.shape)}; row k holds "
                "the scores of going from position k"
            )
        if bool((self.matrix.isnan() | (self.matrix == torch.inf)).any()):
            raise NonFiniteError(
                "transitions: expected finite scores (or −inf for a step that is forbidden), received NaN or +inf; "
                "look for an overflow or a division by zero upstream"
            )

    @property
    def positions(self) -> int:
        return self.matrix.shape[-1]

    @property
    def device(self) -> torch.device:
        return self.matrix.device

    @cached_property
    def _forbidden(self) -> Tensor | None:
        forbidden = self.matrix == -torch.inf
        return forbidden if bool(forbidden.any()) else None

    @property
    def allowed(self) -> Tensor | None:
        return None if self._forbidden is None else ~self._forbidden

    @property
    def can_stay(self) -> bool:
        return self._forbidden is None or not bool(self._forbidden.diagonal(dim1=-2, dim2=-1).any())

    @property
    def learnt(self) -> Tensor:
        return self.matrix

    @property
    def pairs(self) -> Tensor | None:
        return self.matrix if self._forbidden is None else self.matrix.masked_fill(self._forbidden, 0.0)

    @cached_property
    def _scores(self) -> Tensor:
        wide = self.matrix if self.matrix.device.type == "mps" else self.matrix.double()
        return wide if self._forbidden is None else wide.masked_fill(self._forbidden, LOG_ZERO)

    @cached_property
    def _largest(self) -> Tensor:
        return self._scores.detach().amax()

    @cached_property
    def _factors(self) -> Tensor | None:
        """R up to a factor, [S,S] or [B,S,S]; None where the obvious way has to be taken."""
        if self.obvious or self._scores.dtype != torch.float64:
            return None
        if float(self._largest - self._scores.detach().amin()) > SAFE_RANGE:
            return None
        return (self._scores - self._largest).exp()

    @cached_property
    def _transposed(self) -> Tensor:
        assert self._factors is not None
        # a product with a view of it is many times slower
        return self._factors.transpose(-1, -2).contiguous()

    def arrive(self, v: Tensor) -> Tensor:
        if self._factors is None:
            return self._stepwise(v, lambda x: (x[..., None] + self._scores).logsumexp(dim=-2))
        return self._product(v, self._factors)

    def leave(self, v: Tensor) -> Tensor:
        if self._factors is None:
            return self._stepwise(v, lambda x: (self._scores + x[..., None, :]).logsumexp(dim=-1))
        return self._product(v, self._transposed)

    def _product(self, v: Tensor, factors: Tensor) -> Tensor:
        most = v.detach().amax(dim=-1, keepdim=True)
        return _times((v - most).exp(), factors).log() + (most + self._largest)

    def _stepwise(self, v: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        if v.dim() == 2:
            return function(v)
        return torch.stack([function(v[:, t]) for t in range(v.shape[1])], dim=1)

    def counts(self, source: Tensor, destination: Tensor) -> Tensor:
        if self._factors is None:
            total = torch.zeros(source.shape[0], self.positions, self.positions).to(source)
            for t in range(source.shape[1]):
                total += (source[:, t, :, None] + self._scores + destination[:, t, None]).exp()
            return total
        most = destination.amax(dim=-1, keepdim=True)
        left = (source + most + self._largest).exp()  # [B,T,S]
        return torch.bmm(left.transpose(1, 2), (destination - most).exp()) * self._factors

    def expected(self, source: Tensor, destination: Tensor, pairs: Tensor) -> Tensor:
        if self._factors is None:
            return super().expected(source, destination, pairs)
        most = source.detach().amax(dim=-1, keepdim=True)
        arrived = torch.matmul((source - most).exp(), self._factors * pairs)  # [B,T,S]
        return (arrived * (destination + most + self._largest).exp()).sum(dim=-1)

    def renewed(self) -> "MatrixTransitions":
        return MatrixTransitions(self.matrix, self.obvious)

    def rows(self, k: Tensor) -> Tensor:
        if self.matrix.dim() == 2:
            return self._scores[k]
        return self._scores[torch.arange(k.shape[1], device=k.device), k]

    def dense(self) -> Tensor:
        return self._scores

    def detach(self) -> "MatrixTransitions":
        return MatrixTransitions(self.matrix.detach(), self.obvious)

    def can_leave(self, possible: Tensor) -> Tensor:
        assert self.allowed is not None
        return _times(possible.float(), self.allowed.float().transpose(-1, -2)) > 0

    def can_arrive(self, possible: Tensor) -> Tensor:
        assert self.allowed is not None
        return _times(possible.float(), self.allowed.float()) > 0


def _times(v: Tensor, matrix: Tensor) -> Tensor:
    """v [B,S] or [B,T,S] times a matrix [S,S] or [B,S,S]."""
    if matrix.dim() == 3 and v.dim() == 2:
        return torch.bmm(v[:, None], matrix)[:, 0]
    return torch.matmul(v, matrix)
