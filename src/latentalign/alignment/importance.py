"""Objectives from K importance-weighted samples of q: reweighted wake-sleep and VIMCO."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from latentalign.alignment.bound import Bound, describe
from latentalign.alignment.checks import check_count
from latentalign.alignment.distributions import Categorical, Latent
from latentalign.alignment.likelihood import Likelihood
from latentalign.alignment.objectives import Objective, categorical_only


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

    def _bound(
        self,
        prior: Latent,
        likelihood: Likelihood,
        posterior: Latent | None,
        generator: torch.Generator | None,
    ) -> Bound:
        drawn = _importance_samples(self, prior, likelihood, posterior, generator)
        share = (drawn.log_joint - drawn.log_q).detach().softmax(dim=0)  # [K,B,T]
        surrogate = (share * (drawn.log_joint + drawn.log_q)).sum(dim=0)
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

    def _bound(
        self,
        prior: Latent,
        likelihood: Likelihood,
        posterior: Latent | None,
        generator: torch.Generator | None,
    ) -> Bound:
        drawn = _importance_samples(self, prior, likelihood, posterior, generator)
        log_weights = drawn.log_joint - drawn.log_q  # [K,B,T]; here q's own gradient belongs to the weights
        with torch.no_grad():
            others = (log_weights.sum(dim=0) - log_weights) / (self.samples - 1)  # log geometric means
            table = log_weights.expand(self.samples, *log_weights.shape).clone()  # [K without,K,B,T]
            index = torch.arange(self.samples, device=table.device)
            table[index, index] = others
            signal = log_weights.logsumexp(dim=0) - table.logsumexp(dim=1)  # [K,B,T]
        surrogate = log_weights.logsumexp(dim=0) + (signal * drawn.log_q).sum(dim=0)
        return drawn.bound(surrogate - surrogate.detach())


@dataclass(frozen=True)
class _Drawn:
    """K samples of q with their log weights."""

    log_joint: Tensor  # [K,B,T]: log p(z) + log f
    log_q: Tensor  # [K,B,T]
    log_f: Tensor  # [K,B,T]
    prior: Categorical
    posterior: Categorical

    def bound(self, gradient: Tensor) -> Bound:
        """The importance-weighted bound with the gradient carried by a tensor of value 0."""
        log_weights = (self.log_joint - self.log_q).detach()
        value = log_weights.logsumexp(dim=0) - math.log(log_weights.shape[0])
        return Bound(
            value=value,
            surrogate=value + gradient,
            log_likelihood=(log_weights.softmax(dim=0) * self.log_f.detach()).sum(dim=0),
            kl=self.posterior.detach().kl(self.prior.detach()),
            diagnostics=describe(self.prior, self.posterior),
        )


def _importance_samples(
    objective: "ReweightedWakeSleep | Vimco",
    prior: Latent,
    likelihood: Likelihood,
    posterior: Latent | None,
    generator: torch.Generator | None,
) -> _Drawn:
    p, q = categorical_only(prior, objective), categorical_only(posterior, objective)
    positions = q.sample(objective.samples, generator)
    log_f = likelihood.at(positions)
    return _Drawn(p.log_prob(positions) + log_f, q.log_prob(positions), log_f, p, q)
