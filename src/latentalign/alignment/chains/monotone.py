"""Transitions that only go forwards, in sums of O(S)."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from latentalign.alignment.chains.matrix import MatrixTransitions
from latentalign.alignment.chains.transitions import LOG_ZERO, Transitions


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

    @property
    def can_stay(self) -> bool:
        return self.stay

    def arrive(self, v: Tensor) -> Tensor:
        sums = _prefix_sums(v)
        return sums if self.stay else _shift(sums, 1)

    def leave(self, v: Tensor) -> Tensor:
        sums = _prefix_sums(v.flip(-1)).flip(-1)
        return sums if self.stay else _shift(sums, -1)

    def counts(self, source: Tensor, destination: Tensor) -> Tensor:
        return MatrixTransitions(self.dense()).counts(source, destination)

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
        # second derivatives are wanted: the sum over i ≥ k of upstream_i exp(v_k − sums_i), written out
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
