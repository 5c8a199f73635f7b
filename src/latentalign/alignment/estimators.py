"""Estimators of E_d[log f(x, z)] and of its gradient; they compose with the ELBO and with hard attention.

An estimator returns the estimate and a surrogate of the same value whose gradient is the estimator's.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from latentalign.alignment.checks import check_count, check_fraction, check_positive
from latentalign.alignment.distributions import Categorical, ContinuousLatent, Latent
from latentalign.alignment.errors import ConfigError
from latentalign.alignment.likelihood import Likelihood, TableLikelihood


@dataclass(frozen=True)
class Expectation:
    """An estimate of E_d[log f], [B,T], and its differentiable twin."""

    value: Tensor  # [B,T], detached
    surrogate: Tensor  # [B,T]


class Baseline(ABC):
    """A control variate B for REINFORCE; constant in the sample it is subtracted from."""

    least_samples: ClassVar[int] = 1

    @abstractmethod
    def __call__(self, log_f: Tensor, prior: Latent, likelihood: Likelihood) -> Tensor:
        """B for each of the samples' log f [K,B,T]; broadcasts to [K,B,T], without a graph."""


@dataclass(frozen=True)
class NoBaseline(Baseline):
    """B = 0: unbiased, of large variance."""

    def __call__(self, log_f: Tensor, prior: Latent, likelihood: Likelihood) -> Tensor:
        return torch.zeros((), dtype=log_f.dtype, device=log_f.device)


@dataclass(frozen=True)
class SoftBaseline(Baseline):
    """B = log f(x, E_p[z]), soft attention under the prior (the paper's equation 1). One evaluation of f."""

    def __call__(self, log_f: Tensor, prior: Latent, likelihood: Likelihood) -> Tensor:
        with torch.no_grad():
            return likelihood.mixture(prior.mean())


@dataclass(frozen=True)
class LeaveOneOut(Baseline):
    """B for sample k = mean log f of the other samples. Free, needs at least two."""

    least_samples: ClassVar[int] = 2

    def __call__(self, log_f: Tensor, prior: Latent, likelihood: Likelihood) -> Tensor:
        log_f = log_f.detach()
        return (log_f.sum(dim=0) - log_f) / (log_f.shape[0] - 1)


class RunningMean(nn.Module, Baseline):
    """B = exponential average of past log f over all outputs. Free; its state travels in checkpoints."""

    mean: Tensor
    seen: Tensor

    def __init__(self, decay: float = 0.99) -> None:
        super().__init__()
        check_fraction("decay", decay, hint="0.99 averages over about a hundred steps")
        self.decay = decay
        self.register_buffer("mean", torch.zeros((), dtype=torch.float64))
        self.register_buffer("seen", torch.zeros((), dtype=torch.float64))

    def forward(self, log_f: Tensor, prior: Latent, likelihood: Likelihood) -> Tensor:
        # the average of earlier steps only: the present samples must not enter their own baseline
        baseline = self.mean / self.seen.clamp_min(1e-12)
        self.mean = self.decay * self.mean + (1 - self.decay) * log_f.detach().mean().to(self.mean.dtype)
        self.seen = self.decay * self.seen + (1 - self.decay)
        return baseline.to(log_f.dtype)

    __call__ = nn.Module.__call__


class Estimator(ABC):
    """Estimates E_d[log f] for a distribution d of the alignment."""

    @abstractmethod
    def __call__(
        self,
        distribution: Latent,
        likelihood: Likelihood,
        *,
        prior: Latent,
        generator: torch.Generator | None = None,
    ) -> Expectation:
        """Estimate; `prior` is what baselines look at (for hard attention it is `distribution` itself)."""

    def narrow(self, distribution: Latent) -> tuple[Latent, Tensor | None]:
        """What to put in the place of d for the estimator's sake, and the probability [B,T] that d loses by it.

        The same d and None, unless the estimator prunes.
        """
        return distribution, None

    def prepare(self, likelihood: Likelihood, support: Tensor) -> Likelihood:
        """What many calls with different d may share; nothing unless the estimator enumerates."""
        return likelihood


@dataclass(frozen=True)
class Enumerate(Estimator):
    """Sum over positions: exact, no variance, S evaluations of f an output.

    With `prune` = ε, d itself is conditioned on the positions with d_i > ε (and always the likeliest): 2–3
    evaluations an output once distributions are sharp. A bound then takes its other terms under the same narrower d,
    so that it stays a bound.
    """

    prune: float = 0.0

    def __post_init__(self) -> None:
        check_fraction("prune", self.prune, hint="0 enumerates all positions, 0.01 is a good start")

    def __call__(
        self,
        distribution: Latent,
        likelihood: Likelihood,
        *,
        prior: Latent,
        generator: torch.Generator | None = None,
    ) -> Expectation:
        distribution, _ = self.narrow(distribution)
        log_f = likelihood.everywhere(distribution.support)  # [B,T,S]
        value = (distribution.probs * log_f).sum(dim=-1)
        return Expectation(value.detach(), value)

    def narrow(self, distribution: Latent) -> tuple[Categorical, Tensor | None]:
        whole = _categorical(distribution, "enumerate")
        if self.prune == 0:
            return whole, None
        part = whole.truncated(self.prune)
        return part, whole.probs.detach().masked_fill(part.support, 0.0).sum(dim=-1)

    def prepare(self, likelihood: Likelihood, support: Tensor) -> Likelihood:
        if self.prune > 0:
            return _TableWithoutGraph(likelihood, support)
        return TableLikelihood(likelihood.everywhere(support))


class _TableWithoutGraph(Likelihood):
    """A likelihood that, detached, is a table made once; with a graph only the pairs asked for are evaluated."""

    def __init__(self, inner: Likelihood, support: Tensor) -> None:
        self.inner, self.support = inner, support

    @property
    def shape(self) -> torch.Size | None:
        return self.inner.shape

    @property
    def is_probability(self) -> bool:
        return self.inner.is_probability

    def upper_bound(self, positions: Tensor) -> Tensor:
        return self.inner.upper_bound(positions)

    def pairs(self, example: Tensor, step: Tensor, position: Tensor) -> Tensor:
        return self.inner.pairs(example, step, position)

    def everywhere(self, mask: Tensor) -> Tensor:
        return self.inner.everywhere(mask)

    def mixture(self, z: Tensor) -> Tensor:
        return self.inner.mixture(z)

    def detach(self) -> TableLikelihood:
        with torch.no_grad():
            return TableLikelihood(self.inner.everywhere(self.support))


@dataclass(frozen=True)
class Reinforce(Estimator):
    """∇log f + (log f − B) ∇log d(z) over samples z ~ d: unbiased; K evaluations of f, and the baseline's.

    Reference: Williams 1992; the soft baseline is the paper's equation 1.
    """

    samples: int = 1
    baseline: Baseline = field(default_factory=SoftBaseline)

    def __post_init__(self) -> None:
        check_count("samples", self.samples, hint="draw one sample or more")
        if self.samples < self.baseline.least_samples:
            raise ConfigError(
                f"samples: expected at least {self.baseline.least_samples} with baseline "
                f"{type(self.baseline).__name__}, received {self.samples}; raise it or take the soft baseline"
            )

    def __call__(
        self,
        distribution: Latent,
        likelihood: Likelihood,
        *,
        prior: Latent,
        generator: torch.Generator | None = None,
    ) -> Expectation:
        distribution = _categorical(distribution, "reinforce")
        positions = distribution.sample(self.samples, generator)  # [K,B,T]
        log_f = likelihood.at(positions)
        advantage = log_f.detach() - self.baseline(log_f, prior, likelihood)
        score = advantage * distribution.log_prob(positions)
        surrogate = (log_f + score - score.detach()).mean(dim=0)
        return Expectation(surrogate.detach(), surrogate)


@dataclass(frozen=True)
class GumbelSoftmax(Estimator):
    """log f at a relaxed sample softmax((log d + Gumbel)/temperature): low variance, biased towards mixtures.

    The KL beside it stays the categorical one. Reference: Jang et al. 2017, Maddison et al. 2017.
    """

    temperature: float = 0.1
    samples: int = 1

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature, hint="the released code of the paper uses 0.1")
        check_count("samples", self.samples, hint="draw one sample or more")

    def __call__(
        self,
        distribution: Latent,
        likelihood: Likelihood,
        *,
        prior: Latent,
        generator: torch.Generator | None = None,
    ) -> Expectation:
        distribution = _categorical(distribution, "gumbel")
        z = distribution.relaxed_sample(self.samples, self.temperature, generator)  # [K,B,T,S]
        value = likelihood.mixture(z).mean(dim=0)
        return Expectation(value.detach(), value)


@dataclass(frozen=True)
class Pathwise(Estimator):
    """log f at a reparameterised sample of a continuous latent: unbiased, low variance; K evaluations."""

    samples: int = 1

    def __post_init__(self) -> None:
        check_count("samples", self.samples, hint="draw one sample or more")

    def __call__(
        self,
        distribution: Latent,
        likelihood: Likelihood,
        *,
        prior: Latent,
        generator: torch.Generator | None = None,
    ) -> Expectation:
        if not isinstance(distribution, ContinuousLatent):
            raise ConfigError(
                "estimator: pathwise expected a continuous latent (Dirichlet, LogisticNormal, Normal), "
                f"received {type(distribution).__name__}; use enumerate, reinforce or gumbel"
            )
        value = likelihood.mixture(distribution.rsample(self.samples, generator)).mean(dim=0)
        return Expectation(value.detach(), value)


def _categorical(distribution: Latent, name: str) -> Categorical:
    if not isinstance(distribution, Categorical):
        raise ConfigError(
            f"estimator: {name} expected a categorical alignment, received {type(distribution).__name__}; "
            "use pathwise for continuous latents"
        )
    return distribution
