"""Objectives from K importance-weighted samples of q: reweighted wake-sleep and VIMCO.

A weight belongs to one step where steps are independent, and to the whole sequence of a chain. There the
bound of every prefix is computed, and a step reports what it adds; over the steps this is the bound of the sequence.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from latentalign.alignment.checks import check_count
from latentalign.alignment.latents.dependence import Dependence
from latentalign.alignment.latents.latent import DiscreteLatent
from latentalign.alignment.learning.bound import Bound, describe
from latentalign.alignment.learning.objectives import Objective, discrete_only
from latentalign.alignment.learning.problem import AlignmentProblem
from latentalign.alignment.masks import logsumexp, zero_where_masked

# nats below the least likely of the other samples: what VIMCO's learning signal takes log 0 for
FAR_BELOW = 20.0


@dataclass(frozen=True)
class ReweightedWakeSleep(Objective):
    """Wake phases from K samples of q: θ by Σ w̃_k ∇log p(y,z_k), φ by Σ w̃_k ∇log q(z_k).

    The value is the importance-weighted bound log 1/K Σ w_k. Biased for finite K (normalised weights), low
    variance; K evaluations of f. Reference: Bornschein & Bengio 2015; Ba et al. 2015.
    """

    samples: int = 5

    def __post_init__(self) -> None:
        check_count("samples", self.samples, hint="the paper uses 5")

    @property
    def needs_posterior(self) -> bool:
        return True

    def _bound(self, problem: AlignmentProblem, generator: torch.Generator | None) -> Bound:
        drawn = _importance_samples(self, problem, generator)
        surrogate = drawn.average(drawn.log_joint + drawn.log_q)
        return drawn.bound(surrogate - surrogate.detach())


@dataclass(frozen=True)
class Vimco(Objective):
    """log 1/K Σ_k w_k with w_k = p(z_k) f(z_k)/q(z_k): unbiased gradient of the importance-weighted bound.

    Each sample's learning signal is the bound minus the bound with its own weight replaced by the geometric
    mean of the others'. K evaluations of f. Reference: Mnih & Rezende 2016.
    """

    samples: int = 5

    def __post_init__(self) -> None:
        check_count(
            "samples", self.samples, least=2, hint="the leave-one-out baseline needs two; the usual is 5"
        )

    @property
    def needs_posterior(self) -> bool:
        return True

    def _bound(self, problem: AlignmentProblem, generator: torch.Generator | None) -> Bound:
        drawn = _importance_samples(self, problem, generator)
        log_weights = drawn.log_joint - drawn.log_q  # [K,B,T]; here q's own gradient belongs to the weights
        with torch.no_grad():
            finite = _without_impossible(log_weights)
            others = (finite.sum(dim=0) - finite) / (self.samples - 1)  # log geometric means
            table = finite.expand(self.samples, *finite.shape).clone()  # [K without,K,B,T]
            index = torch.arange(self.samples, device=table.device)
            table[index, index] = others
            signal = finite.logsumexp(dim=0) - table.logsumexp(dim=1)  # [K,B,T]
        total = logsumexp(log_weights, dim=0)
        surrogate = zero_where_masked(total, total > -torch.inf) + (signal * drawn.log_q).sum(dim=0)
        return drawn.bound(surrogate - surrogate.detach())


def _without_impossible(log_weights: Tensor) -> Tensor:
    """Log weights [K,B,T] with a finite number for samples that cannot give the output (−inf).

    Their true learning signal is infinite; this one is finite and points the same way.
    """
    impossible = log_weights == -torch.inf
    least = log_weights.masked_fill(impossible, torch.inf).amin(dim=0)
    least = least.masked_fill(impossible.all(dim=0), 0.0)
    return torch.where(impossible, least - FAR_BELOW, log_weights)


@dataclass(frozen=True)
class _Drawn:
    """K samples of q with their log weights: of every prefix where steps are a sequence, else of every step."""

    log_joint: Tensor  # [K,B,T]: log p(z) + log f
    log_q: Tensor  # [K,B,T]
    log_f: Tensor  # [K,B,T], of the step
    prior: DiscreteLatent
    posterior: DiscreteLatent
    dependence: Dependence

    @property
    def log_weights(self) -> Tensor:
        """log p f/q, [K,B,T], without a graph."""
        return (self.log_joint - self.log_q).detach()

    def average(self, terms: Tensor) -> Tensor:
        """Σ_k w̃_k terms_k with normalised weights: [B,T]. A sample of weight 0 adds nothing, whatever its term."""
        share = self.log_weights.softmax(dim=0).nan_to_num(0.0)  # NaN where every sample is impossible
        return (share * zero_where_masked(terms, share > 0)).sum(dim=0)

    def bound(self, gradient: Tensor) -> Bound:
        """The importance-weighted bound with the gradient carried by a tensor of value 0."""
        value = self.log_weights.logsumexp(dim=0) - math.log(self.log_weights.shape[0])
        value = self.dependence.increments(value)
        return Bound(
            value=value,
            surrogate=value + self.dependence.increments(gradient),
            log_likelihood=self.average(self.log_f.detach()).masked_fill(value == -torch.inf, -torch.inf),
            kl=self.posterior.detach().kl(self.prior.detach()),
            diagnostics=describe(self.prior, self.posterior),
        )


def _importance_samples(
    objective: "ReweightedWakeSleep | Vimco", problem: AlignmentProblem, generator: torch.Generator | None
) -> _Drawn:
    p, q = discrete_only(problem.prior, objective), discrete_only(problem.posterior, objective)
    positions = q.sample(objective.samples, generator)
    log_f = problem.likelihood.at(positions)
    together = p.dependence.joined(q.dependence)
    log_joint, log_q = (
        together.prefixes(p.log_prob(positions) + log_f),
        together.prefixes(q.log_prob(positions)),
    )
    return _Drawn(log_joint, log_q, log_f, p, q, together)
