"""The evidence of a chain as a differentiable function, by its own forward and backward pass."""

from typing import Any

import torch
from torch import Tensor

from latentalign.alignment.chains.forward_backward import (
    Filtered,
    Inputs,
    Null,
    first_moves,
    flow,
    pair_counts,
    run_backward,
    run_filter,
    wide,
)
from latentalign.alignment.chains.transitions import LOG_ZERO, Transitions


class LogEvidence(torch.autograd.Function):
    """log c [B,T] of a chain, differentiable in scores, log f, start, the matrix of transitions and the null state.

    The backward pass is the chain's own: no graph over the steps.
    """

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        """Arguments as in `log_evidence`, the null state in three parts, and the matrix that has a gradient."""
        scores, log_f, start, matrix, log_odds, start_log_odds, null_log_f, transitions, steps = arguments
        null = None if log_odds is None else Null(log_odds, start_log_odds, null_log_f).double()
        ctx.given = Inputs(wide(scores), wide(log_f), wide(start), transitions.detach(), steps, null)
        ctx.filtered = run_filter(ctx.given)
        ctx.dtypes = [None if x is None else x.dtype for x in arguments[:7]]
        ctx.shape = None if matrix is None else matrix.shape
        return ctx.filtered.log_c.to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        weights = wide(upstream[0]) * ctx.given.steps  # [B,T]
        delta = weights - torch.cat([weights[:, 1:], torch.zeros_like(weights[:, :1])], dim=1)
        sign = (
            -1.0 if bool((delta <= 0).all()) else 1.0
        )  # of a loss all weights are negative: one pass will do
        delta = sign * delta
        slopes = _slopes(ctx.given, ctx.filtered, delta.clamp_min(0.0), ctx.shape)
        if bool((delta < 0).any()):
            others = _slopes(ctx.given, ctx.filtered, (-delta).clamp_min(0.0), ctx.shape)
            slopes = [_minus(x, y) for x, y in zip(slopes, others, strict=True)]
        cast = [x if x is None else (sign * x).to(dtype) for x, dtype in zip(slopes, ctx.dtypes, strict=True)]
        return *cast, None, None


def _minus(x: Tensor | None, y: Tensor | None) -> Tensor | None:
    return x if x is None or y is None else x - y


def _slopes(
    given: Inputs, filtered: Filtered, delta: Tensor, shape: torch.Size | None
) -> list[Tensor | None]:
    """Gradients in scores, log f, start, matrix, log odds, those of the start, and log f of the null state."""
    back = run_backward(given, filtered, delta)
    moved = flow(given, filtered, back)
    # the normalisers: a move away from k pulls all its destinations down
    log_sources = moved.sources.log().clamp_min(LOG_ZERO) - given.log_z
    lost = (given.transitions.arrive(log_sources) + given.scores).exp()
    start_share = (given.start[:, None] + given.scores - given.start_log_z[..., None]).exp()  # [B,T,S]
    start_lost = moved.first[..., None] * start_share
    matrix = None
    if shape is not None:
        matrix = pair_counts(given, filtered, back) - given.transitions.counts(log_sources, given.scores)
        matrix = matrix.sum(dim=0) if len(shape) == 2 else matrix
    first = first_moves(given, filtered, back)
    odds = start_odds = nowhere = None
    if given.null is not None:
        assert moved.null is not None
        assert moved.start_null is not None
        share, start_chance = given.null.log_odds.sigmoid(), given.null.start_log_odds.sigmoid()
        odds = moved.null * (1 - share) - moved.sources * share
        start_odds = moved.start_null * (1 - start_chance) - moved.first * start_chance
        nowhere = moved.null.sum(dim=-1) + moved.start_null
    scores = moved.positions - lost - start_lost
    return [scores, moved.positions, (first - start_lost).sum(dim=1), matrix, odds, start_odds, nowhere]


def log_evidence(
    scores: Tensor,
    log_f: Tensor,
    start: Tensor,
    transitions: Transitions,
    steps: Tensor,
    null: Null | None = None,
) -> Tensor:
    """log p(y_t | y_<t) of a chain, [B,T]; see `LogEvidence`. LOG_ZERO marks impossible positions."""
    matrix = transitions.learnt
    parts = (None, None, None) if null is None else (null.log_odds, null.start_log_odds, null.log_f)
    found: Tensor = LogEvidence.apply(scores, log_f, start, matrix, *parts, transitions, steps)  # type: ignore[no-untyped-call]
    return found
