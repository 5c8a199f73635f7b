"""Estimators of E_d[log f(x, z)] and of its gradient; they compose with the ELBO and with hard attention.

An estimator returns the estimate and a surrogate of the same value whose gradient is the estimator's.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from latentalign.alignment.checks import check_count, check_fraction, check_positive
from latentalign.alignment.errors import ConfigError
from latentalign.alignment.latents.latent import DiscreteLatent, Latent, LogTerms
from latentalign.alignment.likelihoods.likelihood import Likelihood, TableLikelihood

Generator = torch.Generator | None


@dataclass(frozen=True)
class Expectation:
    """An estimate of E_d[log f], [B,T], and its differentiable twin."""

    value: Tensor  # [B,T], detached
    surrogate: Tensor  # [B,T]


@dataclass(frozen=True)
class Narrowed:
    """What an estimator puts in the place of a distribution d: d itself, unless it prunes."""

    part: Latent
    dropped: Tensor | None = None  # [B,T]: the probability that d has outside its part
    whole: DiscreteLatent | None = None  # d, where the part is smaller

    def towards_the_whole(self, prior: Latent) -> Tensor | float:
        """0, with the gradient that takes the prior from E_part[log p] to E_d[log p]."""
        if self.whole is None:
            return 0.0
        terms = prior.discrete("prior:", instead="build prior and posterior with the same class").log_terms()
        part = self.part.discrete("posterior:", instead="build prior and posterior with the same class")
        pull = self.whole.detach().expect(terms) - part.detach().expect(terms)
        return pull - pull.detach()


@dataclass(frozen=True)
class SharedLikelihood:
    """What many estimates of one likelihood under different d share."""

    estimator: "Estimator"  # for the estimates without a graph in f
    without_graph: Likelihood
    with_graph: Likelihood


class Baseline(ABC):
    """A control variate B for REINFORCE; constant in the sample it is subtracted from."""

    least_samples: ClassVar[int] = 1

    @abstractmethod
    def __call__(self, log_f: Tensor, prior: Latent, likelihood: Likelihood) -> Tensor:
        """B of every step for the samples' log f [K,B,T]; broadcasts to [K,B,T], without a graph."""


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

    __call__ = nn.Module.__call__  # not the abstract one of `Baseline`


class Estimator(ABC):
    """Estimates E_d[log f] for a distribution d of the alignment."""

    def __call__(
        self,
        distribution: Latent,
        likelihood: Likelihood,
        *,
        prior: Latent,
        generator: torch.Generator | None = None,
    ) -> Expectation:
        """Estimate; `prior` is for baselines (for hard attention it is `distribution` itself)."""
        return self._estimate(distribution, likelihood, prior, generator)

    @abstractmethod
    def _estimate(
        self, distribution: Latent, likelihood: Likelihood, prior: Latent, generator: Generator
    ) -> Expectation: ...

    def narrow(self, distribution: Latent) -> Narrowed:
        """What to put in the place of d for the estimator's sake."""
        return Narrowed(distribution)

    def prepare(self, likelihood: Likelihood, support: Tensor) -> SharedLikelihood:
        """Evaluate what many calls with different d on one support may share; nothing unless it enumerates."""
        return SharedLikelihood(self, likelihood.detach(), likelihood)


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

    def _estimate(
        self, distribution: Latent, likelihood: Likelihood, prior: Latent, generator: Generator
    ) -> Expectation:
        part = _discrete(self.narrow(distribution).part, "enumerate")
        log_f = likelihood.everywhere(part.support)  # [B,T,S]
        value = part.expect(LogTerms(log_f, part.support))
        return Expectation(value.detach(), value)

    def narrow(self, distribution: Latent) -> Narrowed:
        whole = _discrete(distribution, "enumerate")
        if self.prune == 0:
            return Narrowed(whole)
        part = whole.truncated(self.prune)
        probs = whole.alignment_probs().detach()
        return Narrowed(part, probs.masked_fill(part.support, 0.0).sum(dim=-1), whole)

    def prepare(self, likelihood: Likelihood, support: Tensor) -> SharedLikelihood:
        # with all values of f in a table nothing is gained by pruning
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.prune == 0):
            table = TableLikelihood(likelihood.everywhere(support))
        return SharedLikelihood(Enumerate(), table.detach(), table if self.prune == 0 else likelihood)


@dataclass(frozen=True)
class Reinforce(Estimator):
    """∇log f + (log f − B) ∇log d(z) over samples z ~ d: unbiased; K evaluations of f, and the baseline's.

    Where steps are a sequence, the reward of the choice at step t is the sum of log f − B from t on.
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

    def _estimate(
        self, distribution: Latent, likelihood: Likelihood, prior: Latent, generator: Generator
    ) -> Expectation:
        distribution = _discrete(distribution, "reinforce")
        positions = distribution.sample(self.samples, generator)  # [K,B,T]
        log_f = likelihood.at(positions)
        rewards = log_f.detach() - self.baseline(log_f, prior, likelihood)
        advantage = distribution.dependence.rewards_to_go(rewards)
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

    def _estimate(
        self, distribution: Latent, likelihood: Likelihood, prior: Latent, generator: Generator
    ) -> Expectation:
        distribution = _discrete(distribution, "gumbel")
        z = distribution.relaxed_sample(self.samples, self.temperature, generator)  # [K,B,T,S]
        value = likelihood.mixture(z).mean(dim=0)
        return Expectation(value.detach(), value)


@dataclass(frozen=True)
class Pathwise(Estimator):
    """log f at a reparameterised sample of a continuous latent: unbiased, low variance; K evaluations."""

    samples: int = 1

    def __post_init__(self) -> None:
        check_count("samples", self.samples, hint="draw one sample or more")

    def _estimate(
        self, distribution: Latent, likelihood: Likelihood, prior: Latent, generator: Generator
    ) -> Expectation:
        latent = distribution.continuous("estimator: pathwise", instead="use enumerate, reinforce or gumbel")
        value = likelihood.mixture(latent.rsample(self.samples, generator)).mean(dim=0)
        return Expectation(value.detach(), value)


def _discrete(distribution: Latent, name: str) -> DiscreteLatent:
    return distribution.discrete(f"estimator: {name}", instead="use pathwise for continuous latents")
