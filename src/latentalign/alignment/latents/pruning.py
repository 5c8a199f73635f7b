"""The marginal log Σ_i p_i f_i of independent steps with f at few positions.

Guaranteed, with ε = `prune`:
- the value is a lower bound of the exact one, and `dropped` bounds the posterior probability of all positions whose
  gradient in f was left out: value ≤ exact ≤ value − log(1 − dropped);
- a position is left out only if its posterior probability r_i = p_i f_i / Σ p f is at most ε;
- with ε = 0 nothing would be left out; the dense sum `Categorical.marginalise` is that case, done directly.

Three parts: `search` evaluates f where it may matter, `estimate` gives every position a responsibility, and
`surrogate` is the tensor whose gradient is the pruned one, ∇log Σ p f = Σ r ∇log(p f).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from latentalign.alignment.likelihoods.likelihood import Likelihood
from latentalign.alignment.masks import largest, masked_logsumexp, zero_where_masked

# positions of largest prior that are worth a bound on their f; of the others f ≤ 1 is all that is known
CANDIDATES = 24
ROUNDS = (1, 2)  # positions evaluated in the first rounds; what each finds may spare others the next one


@dataclass(frozen=True)
class PrunedMarginal:
    """What `marginalise_pruned` gives."""

    surrogate: Tensor  # [B,T]
    log_joint: Tensor  # [B,T,S], detached: log p f, estimated where f was not evaluated
    log_f: Tensor  # [B,T,S], detached, 0 where it was not evaluated
    evaluated: Tensor  # [B,T,S] bool
    dropped: Tensor  # [B,T]


@dataclass(frozen=True)
class Evaluated:
    """Where f was evaluated, and what is known where it was not."""

    log_f: Tensor  # [B,T,S], 0 where it was not evaluated
    mask: Tensor  # [B,T,S] bool
    log_joint_bound: Tensor  # [B,T,S], an upper bound on log p f


def marginalise_pruned(
    log_prior: Tensor, support: Tensor, likelihood: Likelihood, prune: float
) -> PrunedMarginal:
    """The marginal by the positions whose responsibility may exceed `prune`."""
    known = search(log_prior.detach(), support, likelihood, prune)
    with torch.no_grad():
        joint = (log_prior + known.log_f).masked_fill(~known.mask, -torch.inf)
        value = joint.logsumexp(dim=-1)  # [B,T]
        everywhere = estimate(joint, known, support)
        share = everywhere.softmax(dim=-1).nan_to_num(0.0)  # NaN where no position can give the output
        kept = (share > prune) & known.mask | largest(joint, 1)
        dropped = _dropped(joint, value, known, kept, support)
    # a lazy likelihood follows only the pairs that have a gradient; of another, those are evaluated again
    log_f = known.log_f if likelihood.is_lazy else likelihood.everywhere(kept)
    # an output that no position can give has no gradient
    twin = zero_where_masked(surrogate(log_prior, log_f, share, kept), value > -torch.inf)
    return PrunedMarginal(value + twin - twin.detach(), everywhere, known.log_f.detach(), known.mask, dropped)


def search(log_prior: Tensor, support: Tensor, likelihood: Likelihood, prune: float) -> Evaluated:
    """Evaluate f in rounds, largest upper bounds first, until every other position is known to be below ε.

    With f̄ ≥ f, r_i ≤ p_i f̄_i / Σ_evaluated p f: a position with p_i f̄_i < ε Σ_evaluated p f need not be evaluated. Of
    a density no bound is known (f̄ = ∞): then all positions are evaluated.
    """
    bound = joint_upper_bound(log_prior, likelihood)
    evaluated = torch.zeros_like(support)
    total = torch.full_like(log_prior[..., :1], -torch.inf)  # [B,T,1], log Σ_evaluated p f
    log_f = torch.zeros_like(log_prior)
    for count in (*ROUNDS, log_prior.shape[-1]):
        candidates = support & ~evaluated & (bound > total + math.log(prune))
        chosen = candidates & largest(bound.masked_fill(~candidates, -torch.inf), count)
        # a graph only where just those that turn out to matter will cost anything
        with torch.set_grad_enabled(torch.is_grad_enabled() and likelihood.is_lazy):
            log_f = log_f + likelihood.everywhere(chosen)
        evaluated = evaluated | chosen
        total = masked_logsumexp(log_prior + log_f.detach(), evaluated)[..., None]
    return Evaluated(log_f, evaluated, bound)


def joint_upper_bound(log_prior: Tensor, likelihood: Likelihood) -> Tensor:
    """An upper bound on log p f, [B,T,S]."""
    candidates = log_prior.topk(min(CANDIDATES, log_prior.shape[-1]), dim=-1).indices  # [B,T,K]
    bound = torch.full_like(log_prior, 0.0 if likelihood.is_probability else torch.inf)
    bound.scatter_(-1, candidates, likelihood.upper_bound(candidates).to(bound.dtype))
    return (log_prior + bound).masked_fill(log_prior == -torch.inf, -torch.inf)


def estimate(joint: Tensor, known: Evaluated, support: Tensor) -> Tensor:
    """log p f [B,T,S]; where it is not known, its upper bound less the bound's mean error elsewhere.

    The responsibility of each of these is below ε, but a prior that takes them for 0 learns to push them down: that
    was half of the error of the whole gradient.
    """
    possible = known.mask & (joint > -torch.inf)
    error = zero_where_masked(known.log_joint_bound - joint, possible).sum(dim=-1, keepdim=True)
    error = error / possible.sum(dim=-1, keepdim=True).clamp_min(1)
    everywhere = torch.where(known.mask, joint, known.log_joint_bound - error)
    return everywhere.masked_fill(~support, -torch.inf)


def surrogate(log_prior: Tensor, log_f: Tensor, share: Tensor, kept: Tensor) -> Tensor:
    """Σ r (log p + log f), [B,T]; f at the kept positions alone, which share out what the others had evenly."""
    left_out = zero_where_masked(share, ~kept).sum(dim=-1)
    followed = zero_where_masked(share, kept) + kept * (left_out / kept.sum(dim=-1))[..., None]
    terms = share * zero_where_masked(log_prior, share > 0)
    return (terms + followed * zero_where_masked(log_f, kept)).sum(dim=-1)


def _dropped(joint: Tensor, value: Tensor, known: Evaluated, kept: Tensor, support: Tensor) -> Tensor:
    """A bound on the posterior probability of what is not kept: what is not evaluated adds at most p f̄."""
    unknown = known.log_joint_bound.exp().masked_fill(known.mask | ~support, 0.0).sum(dim=-1)
    share = torch.sigmoid(unknown.log() - value).nan_to_num(0.0)  # NaN where both are log 0
    found = (joint - value[..., None]).exp().nan_to_num(0.0)
    return share + (1 - share) * found.masked_fill(kept, 0.0).sum(dim=-1)
