"""Outputs that come from nowhere: a chain with a null state, which remembers the position before."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from latentalign.alignment.chains.chain import Chain
from latentalign.alignment.chains.evidence import log_evidence
from latentalign.alignment.chains.forward_backward import Flow, Null, flow, run_backward, run_filter
from latentalign.alignment.chains.transitions import LOG_ZERO
from latentalign.alignment.checks import check_shapes


@dataclass(frozen=True)
class NullMarginalised:
    """log p(y_t | y_<t) of a chain with a null state, and where the outputs come from."""

    surrogate: Tensor  # [B,T], with a graph in scores, transitions, both f and the log odds
    chain: Chain
    log_f: Tensor
    null: Null

    @property
    def value(self) -> Tensor:
        """[B,T], detached."""
        return self.surrogate.detach()

    @cached_property
    def _flow(self) -> Flow:
        with torch.no_grad():
            given = self.chain.detach().inputs(self.log_f, self.null)
            last = self.chain.last_step().to(given.scores.dtype)
            filtered = run_filter(given)
            return flow(given, filtered, run_backward(given, filtered, last))

    @property
    def positions(self) -> Tensor:
        """p(output t comes from position i | y), [B,T,S]; with `nowhere` it sums to 1."""
        return self._flow.positions.to(self.chain.dtype)

    @property
    def nowhere(self) -> Tensor:
        """p(output t comes from nowhere | y), [B,T]."""
        assert self._flow.null is not None
        assert self._flow.start_null is not None
        return (self._flow.null.sum(dim=-1) + self._flow.start_null).to(self.chain.dtype)


def marginalise_with_null(
    chain: Chain, log_f: Tensor, null_log_f: Tensor, log_odds: Tensor | float
) -> NullMarginalised:
    """Sum z out where output t may come from nowhere with log f `null_log_f` [B,T] instead of a position.

    `log_odds` is log o/(1 − o) of the probability o of that: a number, a parameter to be learnt, or anything that
    broadcasts to [B,T]. The chain remembers where it was; before its first position it waits at its start.
    """
    batch, count, positions = chain.shape
    sizes = check_shapes(log_f=(log_f, "B T S"), null_log_f=(null_log_f, "B T"))
    check_shapes(sizes, scores=(chain.scores, "B T S"))
    odds = torch.as_tensor(log_odds, dtype=log_f.dtype, device=log_f.device).expand(batch, count)
    null = Null(odds[..., None].expand(batch, count, positions), odds, null_log_f.clamp_min(LOG_ZERO))
    possible = log_f.clamp_min(LOG_ZERO)
    scores = chain.scores.masked_fill(~chain.support, LOG_ZERO)
    value = log_evidence(scores, possible, chain.start, chain.transitions, chain.steps, null)
    frozen = Null(null.log_odds.detach(), odds.detach(), null.log_f.detach())
    return NullMarginalised(value, chain, possible.detach(), frozen)
