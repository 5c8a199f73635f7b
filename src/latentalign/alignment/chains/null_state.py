"""Outputs that come from nowhere: a chain with a null state, which remembers the position before.

Two ways, with the same numbers. `with_null` makes an ordinary chain over 2S + 1 states, which can do all that a chain
can: paths, samples, entropies, divergences. `marginalise_with_null` is fast and keeps nothing of the size of pairs.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from latentalign.alignment.chains.chain import Chain
from latentalign.alignment.chains.evidence import log_evidence
from latentalign.alignment.chains.forward_backward import Flow, Null, flow, run_backward, run_filter
from latentalign.alignment.chains.matrix import MatrixTransitions
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
            given = self.chain.inputs(self.log_f, self.null)
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
    return NullMarginalised(value, chain, possible, null)


def with_null(chain: Chain, log_odds: Tensor | float) -> Chain:
    """The chain over states: S positions; S times "from nowhere, last at k"; "from nowhere, and nowhere yet".

    `log_odds` are those of `marginalise_with_null`. `f_with_null` gives the f of these states and
    `positions_with_null` the positions of their paths.

    Example:
        >>> from latentalign.alignment import MonotoneTransitions
        >>> chain = Chain.from_scores(torch.zeros(1, 2, 2), transitions=MonotoneTransitions(2))
        >>> with_null(chain, 0.0).mean()[0, 1]  # even odds: the second output comes from nowhere half of the time
        tensor([0.1875, 0.3125, 0.1250, 0.1250, 0.2500])
    """
    batch, count, positions = chain.shape
    odds = torch.as_tensor(log_odds, dtype=chain.scores.dtype, device=chain.device).expand(batch, count)
    scores = chain.scores.masked_fill(~chain.support, LOG_ZERO)
    # a null state's score is the log odds over all that the position might have gone on to
    onwards = chain.transitions.renewed().leave(scores.double()).to(scores.dtype)  # [B,T,S]
    first = (chain.start[:, None] + scores).logsumexp(dim=-1)  # [B,T]
    states = torch.cat([chain.scores, onwards + odds[..., None], (first + odds)[..., None]], dim=-1)
    visited = chain.support.cumsum(dim=1) > 0
    before = torch.cat([torch.zeros_like(visited[:, :1]), visited[:, :-1]], dim=1)
    mask = torch.cat([chain.support, before, torch.ones_like(chain.steps)[..., None]], dim=-1)
    start = torch.cat([chain.start, chain.start.new_zeros(batch, positions + 1)], dim=-1)
    return Chain.from_scores(
        states,
        mask,
        transitions=_null_transitions(chain),
        steps=chain.steps,
        start=start,
    )


def _null_transitions(chain: Chain) -> MatrixTransitions:
    """Between the states of `with_null`, [B,2S+1,2S+1]: a null state leaves as the position that it remembers."""
    batch, _, size = chain.shape
    moves = chain.transitions.renewed().dense()
    moves = moves.masked_fill(moves <= LOG_ZERO, -torch.inf).expand(batch, size, size)
    never = moves.new_full((batch, size, 1), -torch.inf)
    stay = moves.new_full((size, size), -torch.inf).fill_diagonal_(0.0).expand(batch, size, size)
    leaving = torch.cat([moves, stay, never], dim=-1)  # [B,S,2S+1]
    waiting = torch.cat([chain.start.to(moves.dtype)[:, None], never.mT, torch.zeros_like(never[:, :1])], -1)
    return MatrixTransitions(torch.cat([leaving, leaving, waiting], dim=1))


def f_with_null(log_f: Tensor, null_log_f: Tensor) -> Tensor:
    """log f of the states of `with_null`, [B,T,2S+1], by log f of the positions [B,T,S] and from nowhere [B,T]."""
    check_shapes(log_f=(log_f, "B T S"), null_log_f=(null_log_f, "B T"))
    nowhere = null_log_f[..., None].expand(*null_log_f.shape, log_f.shape[-1] + 1)
    return torch.cat([log_f, nowhere], dim=-1)


def positions_with_null(states: Tensor, positions: int) -> Tensor:
    """The positions of states of `with_null`, given the number of positions; −1 from nowhere."""
    return torch.where(states < positions, states, -1)
