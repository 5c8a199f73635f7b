"""At test time: E_p[f(x,z)] exactly, over the K likeliest positions, by samples, or soft.

Any trained model takes any of them."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from latentalign.alignment.checks import check_count
from latentalign.alignment.latents.categorical import Categorical
from latentalign.alignment.latents.latent import DiscreteLatent, Latent
from latentalign.alignment.learning.marginal import exact_marginal
from latentalign.alignment.likelihoods.likelihood import Likelihood


class Predictor(ABC):
    """The predictive distribution of a trained model."""

    needs_discrete: ClassVar[bool] = False
    """Whether it goes through single positions, so that a continuous alignment will not do."""
    enumerates: ClassVar[bool] = False
    """Whether it evaluates f at every position."""
    is_random: ClassVar[bool] = False
    """Whether it draws samples, so that its results depend on a seed."""

    def shares(
        self, prior: DiscreteLatent, likelihood: Likelihood, *, generator: torch.Generator | None = None
    ) -> Tensor | None:
        """p(z_t | y_<t) as f is averaged over positions, [B,T,S]; None where f is not averaged."""
        return None

    @abstractmethod
    def log_likelihood(
        self, prior: Latent, likelihood: Likelihood, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """log p(y|x) of the observed outputs, [B,T]."""

    @abstractmethod
    def log_probs(
        self, prior: Latent, likelihood: Likelihood, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Log probabilities of every output value, [B,T,V]."""


@dataclass(frozen=True)
class Exact(Predictor):
    """Σ_i p_i f_i over every position."""

    needs_discrete: ClassVar[bool] = True
    enumerates: ClassVar[bool] = True

    def log_likelihood(
        self, prior: Latent, likelihood: Likelihood, *, generator: torch.Generator | None = None
    ) -> Tensor:
        return exact_marginal(_discrete(prior, "exact"), likelihood).surrogate

    def log_probs(
        self, prior: Latent, likelihood: Likelihood, *, generator: torch.Generator | None = None
    ) -> Tensor:
        likelihood.check_fit(prior.shape)
        return likelihood.log_probs_expected(self.shares(_discrete(prior, "exact"), likelihood))

    def shares(
        self, prior: DiscreteLatent, likelihood: Likelihood, *, generator: torch.Generator | None = None
    ) -> Tensor:
        return prior.predictive(likelihood).probs


@dataclass(frozen=True)
class KMax(Predictor):
    """The K positions of largest prior, renormalised: the cost no longer grows with the memory."""

    k: int = 5
    needs_discrete: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count("k", self.k, hint="the paper uses 5")

    def _best(self, prior: Latent, likelihood: Likelihood) -> Categorical:
        likelihood.check_fit(prior.shape)
        return _discrete(prior, "kmax").predictive(likelihood, keep=self.k)

    def log_likelihood(
        self, prior: Latent, likelihood: Likelihood, *, generator: torch.Generator | None = None
    ) -> Tensor:
        return exact_marginal(self._best(prior, likelihood), likelihood).surrogate

    def log_probs(
        self, prior: Latent, likelihood: Likelihood, *, generator: torch.Generator | None = None
    ) -> Tensor:
        return likelihood.log_probs_expected(self._best(prior, likelihood).probs)

    def shares(
        self, prior: DiscreteLatent, likelihood: Likelihood, *, generator: torch.Generator | None = None
    ) -> Tensor:
        return prior.predictive(likelihood, keep=self.k).probs


@dataclass(frozen=True)
class Sampled(Predictor):
    """The mean of f over N samples of the prior: the only choice for relaxed alignments.

    Samples of a chain are whole sequences: their product of f is averaged, and a step reports what it adds.
    """

    n: int = 20
    is_random: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count("n", self.n, hint="20 samples are a good start")

    def log_likelihood(
        self, prior: Latent, likelihood: Likelihood, *, generator: torch.Generator | None = None
    ) -> Tensor:
        likelihood.check_fit(prior.shape)
        log_f = prior.dependence.prefixes(prior.sampled_log_f(likelihood, self.n, generator))
        return prior.dependence.increments(log_f.logsumexp(dim=0) - math.log(self.n))

    def log_probs(
        self, prior: Latent, likelihood: Likelihood, *, generator: torch.Generator | None = None
    ) -> Tensor:
        likelihood.check_fit(prior.shape)
        return prior.sampled_log_probs(likelihood, self.n, generator)

    def shares(
        self, prior: DiscreteLatent, likelihood: Likelihood, *, generator: torch.Generator | None = None
    ) -> Tensor:
        return prior.sampled_shares(likelihood, self.n, generator)


@dataclass(frozen=True)
class SoftContext(Predictor):
    """f(x, E_p[z]): soft attention, one evaluation of f."""

    def log_likelihood(
        self, prior: Latent, likelihood: Likelihood, *, generator: torch.Generator | None = None
    ) -> Tensor:
        return likelihood.mixture(prior.mean())

    def log_probs(
        self, prior: Latent, likelihood: Likelihood, *, generator: torch.Generator | None = None
    ) -> Tensor:
        return likelihood.log_probs_mixture(prior.mean())


def _discrete(prior: Latent, name: str) -> DiscreteLatent:
    return prior.discrete(f"inference: {name}", instead="use sample:N (or soft) for a continuous one")
