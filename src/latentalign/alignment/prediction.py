"""At test time: E_p[f(x,z)] exactly, over the K likeliest positions, by samples, or soft.

Any trained model takes any of them."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from latentalign.alignment.checks import check_count
from latentalign.alignment.distributions import Categorical, ContinuousLatent, Latent
from latentalign.alignment.errors import ConfigError
from latentalign.alignment.likelihood import ContextLikelihood, Likelihood
from latentalign.alignment.marginal import exact_marginal


class Predictor(ABC):
    """The predictive distribution of a trained model."""

    @abstractmethod
    def score(
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

    def score(
        self, prior: Latent, likelihood: Likelihood, *, generator: torch.Generator | None = None
    ) -> Tensor:
        return exact_marginal(_categorical(prior, "exact"), likelihood).surrogate

    def log_probs(
        self, prior: Latent, likelihood: Likelihood, *, generator: torch.Generator | None = None
    ) -> Tensor:
        return _mixture_of_pairs(_categorical(prior, "exact"), likelihood)


@dataclass(frozen=True)
class KMax(Predictor):
    """The K positions of largest prior, renormalised: the cost no longer grows with the memory."""

    k: int = 5

    def __post_init__(self) -> None:
        check_count("k", self.k, hint="the paper uses 5")

    def _best(self, prior: Latent) -> Categorical:
        prior = _categorical(prior, "kmax")
        top = prior.log_probs.topk(min(self.k, prior.shape[-1]), dim=-1).indices
        best = torch.zeros_like(prior.support).scatter(-1, top, True)
        return prior.within(best & prior.support)

    def score(
        self, prior: Latent, likelihood: Likelihood, *, generator: torch.Generator | None = None
    ) -> Tensor:
        return exact_marginal(self._best(prior), likelihood).surrogate

    def log_probs(
        self, prior: Latent, likelihood: Likelihood, *, generator: torch.Generator | None = None
    ) -> Tensor:
        return _mixture_of_pairs(self._best(prior), likelihood)


@dataclass(frozen=True)
class Sampled(Predictor):
    """The mean of f over N samples of the prior: the only choice for relaxed alignments."""

    n: int = 20

    def __post_init__(self) -> None:
        check_count("n", self.n, hint="20 samples are a good start")

    def score(
        self, prior: Latent, likelihood: Likelihood, *, generator: torch.Generator | None = None
    ) -> Tensor:
        likelihood.check_fit(prior.shape)
        if isinstance(prior, Categorical):
            log_f = likelihood.at(prior.sample(self.n, generator))
        else:
            log_f = likelihood.mixture(_continuous(prior).rsample(self.n, generator))
        return log_f.logsumexp(dim=0) - math.log(self.n)

    def log_probs(
        self, prior: Latent, likelihood: Likelihood, *, generator: torch.Generator | None = None
    ) -> Tensor:
        if isinstance(prior, Categorical):
            drawn = prior.sample(self.n, generator)  # [K,B,T]
            counts = torch.zeros_like(prior.probs)
            counts.scatter_add_(
                -1, drawn.permute(1, 2, 0), torch.ones_like(counts[..., :1]).expand(*counts.shape[:2], self.n)
            )
            return _mixture_of_pairs(Categorical.from_probs(counts), likelihood)
        total: Tensor | None = None
        for z in _continuous(prior).rsample(self.n, generator):  # one sample at a time bounds the memory
            part = likelihood.log_probs_mixture(z)
            total = part if total is None else torch.logaddexp(total, part)
        assert total is not None
        return total - math.log(self.n)


@dataclass(frozen=True)
class SoftContext(Predictor):
    """f(x, E_p[z]): soft attention, one evaluation of f."""

    def score(
        self, prior: Latent, likelihood: Likelihood, *, generator: torch.Generator | None = None
    ) -> Tensor:
        return likelihood.mixture(prior.mean())

    def log_probs(
        self, prior: Latent, likelihood: Likelihood, *, generator: torch.Generator | None = None
    ) -> Tensor:
        return likelihood.log_probs_mixture(prior.mean())


def _mixture_of_pairs(prior: Categorical, likelihood: Likelihood) -> Tensor:
    """log Σ_i p_i f_i for every output value, over the prior's support, in chunks of bounded size."""
    likelihood.check_fit(prior.shape)
    batch, steps = prior.shape[:2]
    example, step, position = prior.support.nonzero(as_tuple=True)
    weight = prior.probs[example, step, position]
    row = example * steps + step
    limit = likelihood.max_elements if isinstance(likelihood, ContextLikelihood) else 2**24
    size = max(1, limit // likelihood.width) if isinstance(likelihood, ContextLikelihood) else len(row)
    total: Tensor | None = None
    for start in range(0, len(row), size):
        chunk = slice(start, start + size)
        probs = likelihood.log_probs_pairs(example[chunk], step[chunk], position[chunk]).exp()  # [N,V]
        if total is None:
            total = probs.new_zeros(batch * steps, probs.shape[-1])
        total = total.index_add(0, row[chunk], probs * weight[chunk, None])
    assert total is not None
    return total.clamp_min(torch.finfo(total.dtype).tiny).log().view(batch, steps, -1)


def _categorical(prior: Latent, name: str) -> Categorical:
    if not isinstance(prior, Categorical):
        raise ConfigError(
            f"inference: {name} expected a categorical prior, received {type(prior).__name__}; "
            "use sample:N (or soft) for a continuous one"
        )
    return prior


def _continuous(prior: Latent) -> ContinuousLatent:
    assert isinstance(prior, ContinuousLatent)
    return prior
