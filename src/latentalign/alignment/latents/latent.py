"""What objectives, estimators and predictors need of a latent variable; they call methods and never test its type.

Batch shape is [B,T]; the event axis (S positions, or D features) is last; samples come first: [K,B,T,…].
A latent is discrete (z_t is one position: `Categorical`, `Chain`) or continuous (z_t is a mixture or a vector).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn

import torch
from torch import Tensor

from latentalign.alignment.errors import ConfigError, ShapeError
from latentalign.alignment.latents.dependence import Dependence, IndependentSteps
from latentalign.alignment.likelihoods.likelihood import Likelihood

if TYPE_CHECKING:
    from latentalign.alignment.latents.categorical import Categorical


class Latent(ABC):
    """A distribution of the latent variable of every step."""

    is_discrete: bool = False
    family: str  # a word for messages

    @property
    @abstractmethod
    def shape(self) -> torch.Size:
        """[B,T,S] (or [B,T,D])."""

    @property
    def device(self) -> torch.device:
        return self.mean().device

    @property
    def dependence(self) -> Dependence:
        """Which steps depend on each other."""
        return IndependentSteps()

    def over_steps(self, steps: Tensor) -> "Latent":
        """The same with a mask over steps [B,T]; it matters only to a latent whose steps depend on each other."""
        return self

    @abstractmethod
    def mean(self) -> Tensor:
        """E[z], [B,T,S]."""

    @abstractmethod
    def kl(self, other: "Latent") -> Tensor:
        """KL[self ‖ other] in nats, [B,T]; over the steps it adds up to that of the whole."""

    def alignment_probs(self) -> Tensor:
        """The discrete alignment that E[z] implies, [B,T,S]: what links and pictures are read from."""
        return self.mean()

    @abstractmethod
    def alignment_entropy(self) -> Tensor:
        """Entropy of the alignment of each step in nats, [B,T]: what tables report."""

    @abstractmethod
    def detach(self) -> "Latent":
        """The same distribution, cut off from the graph."""

    @abstractmethod
    def sampled_log_f(
        self, likelihood: Likelihood, samples: int, generator: torch.Generator | None = None
    ) -> Tensor:
        """log f at samples of z, [K,B,T]."""

    @abstractmethod
    def sampled_log_probs(
        self, likelihood: Likelihood, samples: int, generator: torch.Generator | None = None
    ) -> Tensor:
        """Log of the mean over samples of z of the probability of every output value, [B,T,V]."""

    def within(self, prior: "Latent") -> "Latent":
        """The same, conditioned on where the prior is above 0; a continuous latent is everywhere."""
        return self

    def with_full_support(self, scores: Tensor, mask: Tensor | None) -> "Latent":
        """The same family by scores [B,T,S], with no position at 0 that the mask (True = real) allows: what q needs."""
        return self

    def discrete(self, place: str, *, instead: str) -> "DiscreteLatent":
        """Itself if z is one position; else one line that says what to use instead."""
        raise ConfigError(
            f"{place} expected a discrete alignment (categorical or a chain), received {type(self).__name__}; "
            f"{instead}"
        )

    def continuous(self, place: str, *, instead: str) -> "ContinuousLatent":
        """Itself if it has pathwise samples; else one line that says what to use instead."""
        raise ConfigError(
            f"{place} expected a continuous latent (Dirichlet, LogisticNormal, Normal), received "
            f"{type(self).__name__}; {instead}"
        )

    def check_family(self, prior: "Latent") -> None:
        """Refuse a prior that this posterior has no divergence from."""
        if type(self) is not type(prior) and not (self.is_discrete and prior.is_discrete):
            raise ConfigError(
                f"posterior and prior: expected distributions of one family, received {type(self).__name__} and "
                f"{type(prior).__name__}; build both with the same class"
            )
        if self.shape != prior.shape:
            raise ShapeError(
                f"posterior: expected shape {list(prior.shape)} as the prior's, received {list(self.shape)}; "
                "check that both see the same memory"
            )


class ContinuousLatent(Latent):
    """A latent that can be sampled with gradients (pathwise)."""

    family = "relaxed"

    @abstractmethod
    def rsample(self, samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Reparameterised samples [K,B,T,S]."""

    @abstractmethod
    def log_prob(self, z: Tensor) -> Tensor:
        """Log density of z [K,B,T,S]: [K,B,T]."""

    def continuous(self, place: str, *, instead: str) -> "ContinuousLatent":
        return self

    def sampled_log_f(
        self, likelihood: Likelihood, samples: int, generator: torch.Generator | None = None
    ) -> Tensor:
        return likelihood.mixture(self.rsample(samples, generator))

    def sampled_log_probs(
        self, likelihood: Likelihood, samples: int, generator: torch.Generator | None = None
    ) -> Tensor:
        total: Tensor | None = None
        for z in self.rsample(samples, generator):  # one sample at a time bounds the memory
            part = likelihood.log_probs_mixture(z)
            total = part if total is None else torch.logaddexp(total, part)
        assert total is not None
        return total - torch.tensor(samples, dtype=total.dtype).log().item()


@dataclass(frozen=True)
class Marginalised:
    """log p(y|x) of a discrete latent with its posterior; the gradient of `surrogate` is that of `value`."""

    surrogate: Tensor  # [B,T], with a graph
    log_f: Tensor  # [B,T,S], detached, 0 where it was not evaluated
    # costs something: called once, and only if it is asked for
    find_posterior: Callable[[], "DiscreteLatent"]
    evaluated: Tensor | None = None  # [B,T,S] bool: where log f is known; None = on the support
    dropped: Tensor | None = None  # [B,T], a bound on the posterior probability whose gradient was left out

    @property
    def value(self) -> Tensor:
        """[B,T], detached."""
        return self.surrogate.detach()

    @cached_property
    def posterior(self) -> "DiscreteLatent":
        """p(z|x,y), without a graph."""
        with torch.no_grad():
            return self.find_posterior()

    @property
    def responsibilities(self) -> Tensor:
        """p(z_t = i | x, y), [B,T,S]."""
        return self.posterior.alignment_probs()

    @property
    def expected_log_f(self) -> Tensor:
        """E[log f] under the posterior, [B,T], detached; given that z is where f was evaluated."""
        share = self.responsibilities
        if self.evaluated is not None:
            share = share.masked_fill(~self.evaluated, 0.0)
            share = share / share.sum(dim=-1, keepdim=True)
        # a position that cannot give the output (log f = −inf) has responsibility 0 and adds nothing
        return (share * self.log_f.masked_fill(share == 0, 0.0)).sum(dim=-1)


@dataclass(frozen=True)
class LogTerms:
    """log p(z_t = i | z_{t−1} = k) = nodes_t(i) + pairs(k,i) + sources_t(k); parts are 0 where they are impossible.

    Independent steps have nodes only.
    """

    nodes: Tensor  # [B,T,S]
    support: Tensor  # [B,T,S] bool: nodes that are possible
    pairs: Tensor | None = None  # [S,S] or [B,S,S]
    sources: Tensor | None = None  # [B,T,S], of the position one step before; 0 at the first step
    steps: Tensor | None = None  # [B,T] bool: the terms of other steps are 0
    allowed: Tensor | None = None  # [S,S] or [B,S,S] bool: pairs that are possible; None = all

    def minus(self, other: "LogTerms") -> "LogTerms":
        """The logarithm of a ratio; it means something only where both are possible."""
        return LogTerms(
            self.nodes - other.nodes,
            self.support & other.support,
            _difference(self.pairs, other.pairs),
            _difference(self.sources, other.sources),
            self.steps if other.steps is None else other.steps,
        )

    def forbids(self, latent: "DiscreteLatent") -> Tensor:
        """Where the latent has mass that these terms give the probability 0, [B,T] bool."""
        outside = (latent.support & ~self.support).any(dim=-1)
        if self.allowed is not None:
            forbidden = (~self.allowed).to(self.nodes.dtype)
            nothing = torch.zeros_like(self.nodes)
            mass = latent.expect(LogTerms(nothing, self.support, forbidden, steps=self.steps))
            outside = outside | (mass > 0)
        return outside if self.steps is None else outside & self.steps


def _difference(mine: Tensor | None, theirs: Tensor | None) -> Tensor | None:
    if theirs is None:
        return mine
    return -theirs if mine is None else mine - theirs


class DiscreteLatent(Latent):
    """An alignment to one position a step: it can be enumerated, drawn, and marginalised exactly."""

    is_discrete = True
    support: Tensor  # [B,T,S] bool: where the probability may be above 0

    @abstractmethod
    def detach(self) -> "DiscreteLatent": ...

    @abstractmethod
    def marginalise(self, log_f: Tensor) -> Marginalised:
        """Sum z out of p(z) f(z), given log f [B,T,S] on the support."""

    @abstractmethod
    def marginalise_pruned(self, likelihood: Likelihood, prune: float) -> Marginalised:
        """The same with f at few positions: those whose posterior probability may exceed `prune`."""

    @abstractmethod
    def predictive(self, likelihood: Likelihood, *, keep: int | None = None) -> "Categorical":
        """p(z_t | y_<t) of every step, over its `keep` likeliest positions (all of them unless given)."""

    @abstractmethod
    def sample(self, samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Positions, long [K,B,T]."""

    @abstractmethod
    def log_prob(self, positions: Tensor) -> Tensor:
        """log p(z_t | z_<t) of positions [K,B,T]: [K,B,T]; over the steps it adds up to that of the whole."""

    @abstractmethod
    def mode(self) -> Tensor:
        """The likeliest alignment of all steps together, long [B,T]."""

    @abstractmethod
    def log_terms(self) -> "LogTerms":
        """log p(z_t | z_{t−1}) in parts whose expectations are sums."""

    @abstractmethod
    def expect(self, terms: "LogTerms") -> Tensor:
        """The expectation of such a logarithm under this distribution, [B,T]."""

    def entropy(self) -> Tensor:
        """H(z_t | z_<t) in nats, [B,T]; over the steps it adds up to that of the whole."""
        return -self.expect(self.log_terms())

    def alignment_entropy(self) -> Tensor:
        return self.entropy()

    def kl(self, other: Latent) -> Tensor:
        theirs = other.discrete("prior:", instead="build prior and posterior with the same class")
        divergence = self.expect(self.log_terms().minus(theirs.log_terms()))
        return divergence.masked_fill(theirs.log_terms().forbids(self), torch.inf)

    @abstractmethod
    def truncated(self, least: float) -> "DiscreteLatent":
        """Restricted to the positions of probability above `least`, and always to the likeliest."""

    @abstractmethod
    def free_scores(self) -> Tensor:
        """Scores [B,T,S] that `by_scores` turns into this distribution again."""

    @abstractmethod
    def by_scores(self, scores: Tensor) -> "DiscreteLatent":
        """The same kind of distribution on the same support, by other scores [B,T,S]."""

    def relaxed_sample(
        self, samples: int, temperature: float, generator: torch.Generator | None = None
    ) -> Tensor:
        """Gumbel-softmax samples [K,B,T,S] on the simplex, exactly 0 off the support."""
        self._refuse("estimator: gumbel", "use enumerate or reinforce")

    def discrete(self, place: str, *, instead: str) -> "DiscreteLatent":
        return self

    def sampled_log_f(
        self, likelihood: Likelihood, samples: int, generator: torch.Generator | None = None
    ) -> Tensor:
        return likelihood.at(self.sample(samples, generator))

    def sampled_log_probs(
        self, likelihood: Likelihood, samples: int, generator: torch.Generator | None = None
    ) -> Tensor:
        return likelihood.log_probs_expected(self.sampled_shares(likelihood, samples, generator))

    def sampled_shares(
        self, likelihood: Likelihood, samples: int, generator: torch.Generator | None = None
    ) -> Tensor:
        """p(z_t | y_<t) by samples: the share of each position, [B,T,S].

        In a sequence, a sample weighs as much as its earlier steps explain the earlier outputs.
        """
        positions = self.sample(samples, generator)  # [K,B,T]
        weights = self.dependence.weights_before(lambda: likelihood.at(positions), positions.shape)
        weights = weights.to(positions.device)
        shares = torch.zeros(self.shape, dtype=weights.dtype, device=positions.device)
        return shares.scatter_add_(-1, positions.permute(1, 2, 0), weights.permute(1, 2, 0))

    def _refuse(self, place: str, instead: str) -> NoReturn:
        raise ConfigError(
            f"{place} expected independent steps, received a {type(self).__name__}, for which it has no meaning; "
            f"{instead}"
        )
