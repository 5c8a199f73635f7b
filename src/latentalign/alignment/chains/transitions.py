"""How a chain may move: the score r(k, i) of a step from position k to position i, as sums that a filter needs.

`Transitions` are plain tensors; `Jumps` and `Monotone` are modules that make them, so that what is learnt has an owner.
Probabilities are logarithms throughout, and LOG_ZERO stands for log 0: unlike −inf it can be subtracted.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from latentalign.alignment.checks import check_count, check_positive
from latentalign.alignment.errors import ConfigError, NonFiniteError, ShapeError

LOG_ZERO = -1e30
NOTHING = -1e29  # what is below it has probability 0
# largest range of r for which sums of exponentials in float64 lose nothing: see `MatrixTransitions`
SAFE_RANGE = 250.0


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

    def dense(self) -> Tensor:
        """The whole matrix [S,S] or [B,S,S], LOG_ZERO where forbidden."""
        grid = torch.arange(self.positions, device=self.device).expand(1, -1)  # [1,S]
        return self.rows(grid.t())[:, 0]

    @property
    @abstractmethod
    def device(self) -> torch.device: ...

    def can_leave(self, possible: Tensor) -> Tensor:
        """From which positions one of the possible positions [B,S] bool can be reached, [B,S] bool."""
        return torch.ones_like(possible) & possible.any(dim=-1, keepdim=True)

    def can_arrive(self, possible: Tensor) -> Tensor:
        """Which positions can be reached from one of the possible positions [B,S] bool, [B,S] bool."""
        return torch.ones_like(possible) & possible.any(dim=-1, keepdim=True)


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
        return self._factors.transpose(
            -1, -2
        ).contiguous()  # a product with a view of it is many times slower

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
        if self.allowed is None:
            return super().can_leave(possible)
        return _times(possible.float(), self.allowed.float().transpose(-1, -2)) > 0

    def can_arrive(self, possible: Tensor) -> Tensor:
        if self.allowed is None:
            return super().can_arrive(possible)
        return _times(possible.float(), self.allowed.float()) > 0


def _times(v: Tensor, matrix: Tensor) -> Tensor:
    """v [B,S] or [B,T,S] times a matrix [S,S] or [B,S,S]."""
    if matrix.dim() == 3 and v.dim() == 2:
        return torch.bmm(v[:, None], matrix)[:, 0]
    return torch.matmul(v, matrix)


@dataclass(frozen=True)
class MonotoneTransitions(Transitions):
    """Only forwards: i ≥ k, or i > k without staying. All allowed steps have the score 0; sums cost O(S)."""

    size: int
    stay: bool = True
    on: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def positions(self) -> int:
        return self.size

    @property
    def device(self) -> torch.device:
        return self.on

    @property
    def allowed(self) -> Tensor:
        grid = torch.ones(self.size, self.size, dtype=torch.bool, device=self.on)
        return grid.triu(0 if self.stay else 1)

    def arrive(self, v: Tensor) -> Tensor:
        sums = _prefix_sums(v)
        return sums if self.stay else _shift(sums, 1)

    def leave(self, v: Tensor) -> Tensor:
        sums = _prefix_sums(v.flip(-1)).flip(-1)
        return sums if self.stay else _shift(sums, -1)

    def counts(self, source: Tensor, destination: Tensor) -> Tensor:
        return MatrixTransitions(self.dense().masked_fill(~self.allowed, -torch.inf)).counts(
            source, destination
        )

    def rows(self, k: Tensor) -> Tensor:
        return self.dense()[k]

    def dense(self) -> Tensor:
        wide = torch.float32 if self.on.type == "mps" else torch.float64
        scores = torch.zeros(self.size, self.size, dtype=wide, device=self.on)
        return scores.masked_fill(~self.allowed, LOG_ZERO)

    def detach(self) -> "MonotoneTransitions":
        return self

    def can_leave(self, possible: Tensor) -> Tensor:
        ahead = possible.flip(-1).cummax(dim=-1).values.flip(-1)
        return ahead if self.stay else _shift(ahead, -1)

    def can_arrive(self, possible: Tensor) -> Tensor:
        behind = possible.cummax(dim=-1).values
        return behind if self.stay else _shift(behind, 1)


def _prefix_sums(v: Tensor) -> Tensor:
    found: Tensor = _LogCumSumExp.apply(v)  # type: ignore[no-untyped-call]
    return found


class _LogCumSumExp(torch.autograd.Function):
    """log Σ_{k≤i} exp(v_k) over the last axis. torch's own has second derivatives of NaN where a gradient is 0."""

    @staticmethod
    def forward(ctx: Any, v: Tensor) -> Tensor:
        sums = v.logcumsumexp(dim=-1)
        ctx.save_for_backward(v, sums)
        return sums

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Tensor:
        v, sums = ctx.saved_tensors
        if not torch.is_grad_enabled():
            with torch.enable_grad():
                leaf = v.detach().requires_grad_()
                (slope,) = torch.autograd.grad(leaf.logcumsumexp(dim=-1), leaf, upstream)
            return slope
        # somebody wants second derivatives: the sum over i ≥ k of upstream_i exp(v_k − sums_i), written out
        later = torch.ones(v.shape[-1:] * 2, dtype=torch.bool, device=v.device).triu()
        share = (v[..., :, None] - sums[..., None, :]).masked_fill(~later, LOG_ZERO).exp()
        return (share * upstream[..., None, :]).sum(dim=-1)


def _shift(values: Tensor, by: int) -> Tensor:
    """Move the last axis by one; what comes in is log 0 (or False)."""
    empty = torch.full_like(values[..., :1], 0 if values.dtype == torch.bool else LOG_ZERO)
    return (
        torch.cat([empty, values[..., :-1]], dim=-1)
        if by > 0
        else torch.cat([values[..., 1:], empty], dim=-1)
    )


def jump_matrix(jumps: Tensor, positions: int) -> Tensor:
    """r(k, i) = jumps[i − k], with jumps [2W+1] for the distances −W … W; further ones share the last: [S,S]."""
    width = (jumps.shape[-1] - 1) // 2
    place = torch.arange(positions, device=jumps.device)
    return jumps[(place - place[:, None]).clamp(-width, width) + width]


class Jumps(nn.Module):
    """A learnt score for every distance up to ± width; at first all are 0, and the chain has no memory.

    The scores are `rate` times the parameter. An optimiser like Adam, which moves every number by about as much in a
    step, then moves the scores `rate` times as fast as the weights of a network: there are few of them, and they have
    far to go.
    """

    def __init__(self, width: int = 10, *, rate: float = 1.0) -> None:
        super().__init__()
        check_count("width", width, hint="the largest jump with a score of its own; try 10")
        check_positive("rate", rate, hint="1 learns as fast as other weights; try 10")
        self.width, self.rate = width, rate
        self.scores = nn.Parameter(torch.zeros(2 * width + 1))

    def forward(self, positions: int) -> MatrixTransitions:
        """The transitions between so many positions."""
        return MatrixTransitions(jump_matrix(self.rate * self.scores, positions))


class Monotone(nn.Module):
    """Forwards only, with or without staying; nothing is learnt."""

    place: Tensor

    def __init__(self, *, stay: bool = True) -> None:
        super().__init__()
        self.stay = stay
        self.register_buffer("place", torch.zeros(()), persistent=False)  # knows the module's device

    def forward(self, positions: int) -> MonotoneTransitions:
        """The transitions between so many positions."""
        return MonotoneTransitions(positions, self.stay, self.place.device)


TransitionsName = Literal["jump", "monotone", "strictly-monotone"]


def build_transitions(name: str, width: int = 10, *, rate: float = 1.0) -> Jumps | Monotone:
    """A module that makes transitions: `jump`, `monotone` (may stay) or `strictly-monotone` (may not)."""
    choices: dict[str, Callable[[], Jumps | Monotone]] = {
        "jump": lambda: Jumps(width, rate=rate),
        "monotone": Monotone,
        "strictly-monotone": lambda: Monotone(stay=False),
    }
    if name not in choices:
        raise ConfigError(
            f"transitions: expected one of {', '.join(choices)}, received {name!r}; choose one of these"
        )
    check_count("width", width, hint="the largest jump with a score of its own; try 10")
    return choices[name]()
