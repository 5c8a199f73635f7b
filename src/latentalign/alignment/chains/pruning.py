"""The marginal of a chain with f at few positions.

Guaranteed, with ε = `prune`:
- the value is a lower bound of the exact one: the evidence of the paths through evaluated positions alone;
- a position is left out only if its posterior probability is at most ε in the chain whose f is at its upper bound
  wherever it is not evaluated.
What is left out is not bounded step by step as it is for independent steps: later outputs may favour any path. So
`dropped` is an estimate, the posterior probability of what is left out in that chain.

As for independent steps (`pruning.py`), f is evaluated in rounds, largest first, and positions that were never
evaluated get an estimate for the sake of the prior. A round costs one filter and one backward pass, which is little
beside f.
"""

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from latentalign.alignment.chains.evidence import log_evidence
from latentalign.alignment.chains.forward_backward import flow, run_backward, run_filter
from latentalign.alignment.chains.transitions import LOG_ZERO
from latentalign.alignment.latents.pruning import ROUNDS, joint_upper_bound
from latentalign.alignment.likelihoods.likelihood import Likelihood
from latentalign.alignment.masks import largest, zero_where_masked

if TYPE_CHECKING:
    from latentalign.alignment.chains.chain import Chain


@dataclass(frozen=True)
class PrunedChainMarginal:
    """What `marginalise_pruned_chain` gives."""

    surrogate: Tensor  # [B,T]
    mixed_log_f: Tensor  # [B,T,S], detached: estimated where f was not evaluated
    log_f: Tensor  # [B,T,S], detached, 0 where it was not evaluated
    evaluated: Tensor  # [B,T,S] bool
    dropped: Tensor  # [B,T]


def marginalise_pruned_chain(chain: "Chain", likelihood: Likelihood, prune: float) -> PrunedChainMarginal:
    """The marginal by the positions whose posterior probability may exceed `prune`."""
    frozen, real = chain.detach(), chain.support & chain.steps[..., None]
    with torch.no_grad():
        marginals = frozen.mean()
        log_prior = marginals.clamp_min(torch.finfo(marginals.dtype).tiny).log().masked_fill(~real, LOG_ZERO)
        upper = zero_where_masked(joint_upper_bound(log_prior, likelihood) - log_prior, real)
    log_f, evaluated = _search(frozen, real, upper, likelihood, prune)
    with torch.no_grad():
        mixed = _estimate(log_f.detach(), evaluated, upper, real)
        share = smoothed(frozen, mixed)
        kept = (share > prune) & evaluated | largest(share.masked_fill(~evaluated, -1.0), 1) & evaluated
        pessimistic = smoothed(frozen, torch.where(evaluated, log_f.detach(), upper))
        dropped = pessimistic.masked_fill(kept, 0.0).sum(dim=-1)
        lower = log_f.detach().masked_fill(~evaluated & real, LOG_ZERO)
        value = log_evidence(*_arguments(frozen, lower))
    # a lazy likelihood follows only the pairs that have a gradient; of another, those are evaluated again
    followed_f = log_f if likelihood.is_lazy else likelihood.everywhere(kept)
    left_out = share.masked_fill(kept, 0.0).sum(dim=-1)
    followed = zero_where_masked(share, kept)
    followed = followed + kept * (left_out / kept.sum(dim=-1).clamp_min(1))[..., None]
    twin = log_evidence(*_arguments(chain, mixed))
    twin = twin + (followed * zero_where_masked(followed_f, kept)).sum(dim=-1)
    surrogate = value + twin - twin.detach()
    return PrunedChainMarginal(surrogate, mixed, log_f.detach(), evaluated, dropped)


def _arguments(chain: "Chain", log_f: Tensor) -> tuple:  # type: ignore[type-arg]
    scores = chain.scores.masked_fill(~chain.support, LOG_ZERO)
    return scores, log_f.to(scores.dtype), chain.start, chain.transitions, chain.steps


def smoothed(chain: "Chain", log_f: Tensor) -> Tensor:
    """p(z_t = i | y) for log f [B,T,S], by one filter and one backward pass; 0 at padding."""
    given = chain.inputs(log_f)
    filtered = run_filter(given)
    back = run_backward(given, filtered, chain.last_step().to(given.scores.dtype))
    return flow(given, filtered, back).positions.to(chain.dtype)


def _search(
    chain: "Chain", real: Tensor, upper: Tensor, likelihood: Likelihood, prune: float
) -> tuple[Tensor, Tensor]:
    """Evaluate f in rounds until no other position exceeds ε, its f at its upper bound: log f and where."""
    evaluated = torch.zeros_like(real)
    log_f = torch.zeros_like(upper)
    # what a round finds lowers the sum, and others may rise above ε: on until none does
    for count in itertools.chain(ROUNDS, itertools.repeat(upper.shape[-1])):
        with torch.no_grad():
            share = smoothed(chain, torch.where(evaluated, log_f.detach(), upper))
            candidates = real & ~evaluated & (share > prune)
            chosen = candidates & largest(share.masked_fill(~candidates, -1.0), count)
            if not bool(evaluated.any()):
                chosen = chosen | _first(chain, share, real)
            elif not bool(chosen.any()):
                break
        # a graph only where just those that turn out to matter will cost anything
        with torch.set_grad_enabled(torch.is_grad_enabled() and likelihood.is_lazy):
            log_f = log_f + likelihood.everywhere(chosen).to(log_f.dtype)
        evaluated = evaluated | chosen
    return log_f, evaluated


def _first(chain: "Chain", share: Tensor, real: Tensor) -> Tensor:
    """One position of every step at least; where steps are forbidden, a whole path."""
    best = largest(share, 1) & real
    if chain.transitions.allowed is None:
        return best
    path = torch.zeros_like(best).scatter(-1, chain.mode()[..., None], True) & real
    return best | path


def _estimate(log_f: Tensor, evaluated: Tensor, upper: Tensor, real: Tensor) -> Tensor:
    """log f; where it is not known, its upper bound less the bound's mean error at the same step."""
    known = evaluated & (log_f > LOG_ZERO)
    error = zero_where_masked(upper - log_f, known).sum(dim=-1, keepdim=True)
    error = error / known.sum(dim=-1, keepdim=True).clamp_min(1)
    return zero_where_masked(torch.where(evaluated, log_f, upper - error), real)
