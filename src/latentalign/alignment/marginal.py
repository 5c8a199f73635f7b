"""The exact marginal log Σ_i p_i f_i, dense or pruned to the positions that matter."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from latentalign.alignment.distributions import Categorical
from latentalign.alignment.likelihood import Likelihood
from latentalign.alignment.masks import masked_logsumexp, zero_where_masked

# positions of largest prior that are worth a bound on their f; of the others f ≤ 1 is all that is known
CANDIDATES = 24
LOOKS = (1, 2)  # positions of the first looks; what each finds may spare others the next one


@dataclass(frozen=True)
class ExactMarginal:
    """log p(y|x) with its posterior; the gradient of `surrogate` is that of `value`."""

    value: Tensor  # [B,T], detached
    surrogate: Tensor  # [B,T]
    responsibilities: Tensor  # [B,T,S], detached: r_i = p_i f_i / Σ p f
    expected_log_f: Tensor  # [B,T], detached: Σ r_i log f_i
    dropped: Tensor | None = None  # [B,T], a bound on the responsibility left out


def exact_marginal(prior: Categorical, likelihood: Likelihood, *, prune: float = 0.0) -> ExactMarginal:
    """Marginalise over every position (prune = 0) or over those whose responsibility can exceed `prune`."""
    likelihood.check_fit(prior.shape)
    return _pruned(prior, likelihood, prune) if prune > 0 else _dense(prior, likelihood)


def _dense(prior: Categorical, likelihood: Likelihood) -> ExactMarginal:
    log_f = likelihood.everywhere(prior.support)  # [B,T,S]
    joint = prior.log_probs + log_f
    value = masked_logsumexp(joint, prior.support)
    with torch.no_grad():
        responsibilities = _posterior(joint, value, prior)
        expected = _expected(responsibilities, log_f)
    return ExactMarginal(value.detach(), value, responsibilities, expected)


def _pruned(prior: Categorical, likelihood: Likelihood, prune: float) -> ExactMarginal:
    """∇log Σ p f = Σ r ∇log(p f): find r, then differentiate only the pairs with r > ε.

    With a cheap bound f̄ ≥ f, r_i ≤ p_i f̄_i / Σ_seen p f: after a look at the most promising positions, every
    position with p_i f̄_i < ε Σ_seen p f is known to be below ε and is never evaluated. (Of a density no bound is
    known; then all are evaluated.) The prior's own gradient is cheap and uses every responsibility, found or guessed.
    """
    log_prior = prior.log_probs.detach()
    reach = _reach(log_prior, likelihood)  # [B,T,S], log p f̄
    seen = torch.zeros_like(prior.support)
    so_far = torch.full_like(log_prior[..., :1], -torch.inf)  # [B,T,1], log Σ_seen p f
    log_f = torch.zeros_like(log_prior)
    for count in (*LOOKS, log_prior.shape[-1]):
        promising = prior.support & ~seen & (reach > so_far + math.log(prune))
        look = promising & _top(reach.masked_fill(~promising, -torch.inf), count)
        log_f = log_f + _look(likelihood, look)
        seen = seen | look
        so_far = masked_logsumexp(log_prior + log_f.detach(), seen)[..., None]
    with torch.no_grad():
        joint = (log_prior + log_f).masked_fill(~seen, -torch.inf)
        value = joint.logsumexp(dim=-1)  # [B,T]
        found = _posterior(joint, value, prior)  # responsibilities as far as they were looked for
        responsibilities = _guess(joint, reach, seen, prior)
        kept = (responsibilities > prune) & seen | _top(joint, 1)
        # what was not evaluated adds at most p f̄ to the sum
        unseen = reach.exp().masked_fill(seen | ~prior.support, 0.0).sum(dim=-1)
        share = torch.sigmoid(unseen.log() - value).nan_to_num(0.0)  # NaN where both are log 0
        dropped = share + (1 - share) * found.masked_fill(kept, 0.0).sum(dim=-1)
        expected = _expected(found, log_f)
        left_out = responsibilities.masked_fill(kept, 0.0).sum(dim=-1)
    if not likelihood.is_lazy:
        log_f = likelihood.everywhere(kept)
    terms = responsibilities * zero_where_masked(prior.log_probs, responsibilities > 0)
    # a pair that is not kept has the gradient 0, which a lazy likelihood does not follow; the others stand in for it
    followed = responsibilities.masked_fill(~kept, 0.0)
    followed = followed + kept * (left_out / kept.sum(dim=-1))[..., None]
    terms = terms + followed * zero_where_masked(log_f, kept)
    # an output that no position can give has no gradient
    twin = zero_where_masked(terms.sum(dim=-1), value > -torch.inf)
    return ExactMarginal(value, value + twin - twin.detach(), responsibilities, expected, dropped)


def _reach(log_prior: Tensor, likelihood: Likelihood) -> Tensor:
    """An upper bound of log p f, [B,T,S]."""
    likeliest = log_prior.topk(min(CANDIDATES, log_prior.shape[-1]), dim=-1).indices  # [B,T,K]
    rest = 0.0 if likelihood.is_probability else torch.inf
    bound = torch.full_like(log_prior, rest)
    bound.scatter_(-1, likeliest, likelihood.upper_bound(likeliest).to(bound.dtype))
    return (log_prior + bound).masked_fill(log_prior == -torch.inf, -torch.inf)


def _guess(joint: Tensor, reach: Tensor, seen: Tensor, prior: Categorical) -> Tensor:
    """Responsibilities [B,T,S]; where log p f was not looked at, its bound less what the bound was off elsewhere.

    Each of these is below ε, but a prior that takes them for nothing learns to push them down: that was half the
    error of the whole gradient.
    """
    possible = seen & (joint > -torch.inf)
    slack = zero_where_masked(reach - joint, possible).sum(dim=-1, keepdim=True)
    slack = slack / possible.sum(dim=-1, keepdim=True).clamp_min(1)
    everywhere = torch.where(seen, joint, reach - slack).masked_fill(~prior.support, -torch.inf)
    return _posterior(everywhere, everywhere.logsumexp(dim=-1), prior)


def _look(likelihood: Likelihood, mask: Tensor) -> Tensor:
    """log f at the True pairs; with a graph where only those that turn out to matter will cost anything."""
    with torch.set_grad_enabled(torch.is_grad_enabled() and likelihood.is_lazy):
        return likelihood.everywhere(mask)


def _posterior(joint: Tensor, value: Tensor, prior: Categorical) -> Tensor:
    """p f / Σ p f; where no position can give the output (the sum is 0) nothing is learnt, and the prior remains."""
    return torch.where((value > -torch.inf)[..., None], (joint - value[..., None]).exp(), prior.probs)


def _expected(responsibilities: Tensor, log_f: Tensor) -> Tensor:
    # a position that cannot give the output (log f = −inf) has responsibility 0 and adds nothing
    return (responsibilities * zero_where_masked(log_f, responsibilities > 0)).sum(dim=-1)


def _top(scores: Tensor, count: int) -> Tensor:
    """True at the `count` largest of the last axis."""
    chosen = scores.topk(min(count, scores.shape[-1]), dim=-1).indices
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, chosen, True)
