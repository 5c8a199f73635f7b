"""Training objectives, maximised, per output. Each is one small object; the model never learns which runs."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from latentalign.alignment.checks import check_count, check_fraction, check_positive
from latentalign.alignment.errors import ConfigError
from latentalign.alignment.latents.latent import DiscreteLatent, Latent
from latentalign.alignment.learning.bound import Bound, describe
from latentalign.alignment.learning.estimators import Enumerate, Estimator, NoBaseline, Reinforce
from latentalign.alignment.learning.marginal import exact_marginal
from latentalign.alignment.learning.problem import AlignmentProblem


class Objective(ABC):
    """objective(problem) -> Bound, all of shape [B,T]."""

    @property
    def needs_posterior(self) -> bool:
        """Whether a posterior q(z|x,y) has to be given."""
        return False

    predicts_by: ClassVar[str] = "exact"
    """How a model trained by it predicts unless another way is named."""

    def __call__(self, problem: AlignmentProblem, *, generator: torch.Generator | None = None) -> Bound:
        """The bound of this objective; `generator` makes its samples repeatable."""
        name = type(self).__name__
        prior, posterior = problem.prior, problem.posterior
        if self.needs_posterior and posterior is None:
            raise ConfigError(
                f"posterior: {name} expected q(z|x,y), received none; pass posterior= from an inference "
                "network or external_posterior, or choose soft, marginal or hard"
            )
        if posterior is not None and not self.needs_posterior:
            raise ConfigError(
                f"posterior: {name} takes none, received {type(posterior).__name__}; drop it or choose "
                "variational, wake, rws or vimco"
            )
        problem.likelihood.check_fit(prior.shape)
        if posterior is not None:
            posterior.check_family(prior)
            problem = replace(problem, posterior=posterior.within(prior))
        return self._bound(problem, generator)

    @abstractmethod
    def _bound(self, problem: AlignmentProblem, generator: torch.Generator | None) -> Bound: ...

    def modules(self) -> Iterator[nn.Module]:
        """Parts with a state of their own (a running mean), which a checkpoint must keep."""
        yield from _stateful_parts(self)


@dataclass(frozen=True)
class Soft(Objective):
    """log f(x, E_p[z]): ordinary attention. One evaluation of f.

    Of a chain, E_p[z_t] is under the prior of the whole chain, which has not seen the outputs before t.

    With `label_smoothing` = ε, what is differentiated is (1 − ε) log f_y + ε times the mean of log f over all output
    values; what is reported stays log f_y.
    """

    predicts_by: ClassVar[str] = "soft"
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        check_fraction("label_smoothing", self.label_smoothing, hint="0 turns it off, 0.1 is usual")

    def _bound(self, problem: AlignmentProblem, generator: torch.Generator | None) -> Bound:
        mean = problem.prior.mean()
        value = problem.likelihood.mixture(mean)
        surrogate = value
        if self.label_smoothing > 0:
            surrogate = value + self.label_smoothing * problem.likelihood.mean_over_target(mean)
        return _without_kl(value.detach(), surrogate, describe(problem.prior))


@dataclass(frozen=True)
class Marginal(Objective):
    """log Σ_i p_i f_i: the exact log marginal likelihood. S evaluations of f, or a few with `prune` = ε.

    Pruned, the reported value is a lower bound and `dropped_mass` bounds the responsibility whose gradient
    was left out.
    """

    prune: float = 0.0

    def __post_init__(self) -> None:
        check_fraction("prune", self.prune, hint="0 enumerates all positions, 0.01 is a good start")

    def _bound(self, problem: AlignmentProblem, generator: torch.Generator | None) -> Bound:
        prior = discrete_only(problem.prior, self)
        exact = exact_marginal(prior, problem.likelihood, prune=self.prune)
        return _without_kl(exact.value, exact.surrogate, describe(prior, dropped_mass=exact.dropped))


@dataclass(frozen=True)
class Elbo(Objective):
    """E_q[log f] − KL[q‖p] ≤ log marginal, by any estimator of the expectation; the KL in closed form.

    With a pruning estimator q is conditioned on its likely positions in both terms: a bound as well, and usually a
    tighter one. `dropped_mass` is the probability that q had elsewhere. The prior still follows the whole q, which
    costs nothing: following the part it would become sharper and sharper, and q with it.
    """

    estimator: Estimator = field(default_factory=Enumerate)

    @property
    def needs_posterior(self) -> bool:
        return True

    def _bound(self, problem: AlignmentProblem, generator: torch.Generator | None) -> Bound:
        prior, posterior = problem.prior, problem.posterior
        assert posterior is not None
        q = self.estimator.narrow(posterior)
        expected = self.estimator(q.part, problem.likelihood, prior=prior, generator=generator)
        kl = q.part.kl(prior)
        return Bound(
            value=expected.value - kl.detach(),
            surrogate=expected.surrogate - kl + q.towards_the_whole(prior),
            log_likelihood=expected.value,
            kl=kl.detach(),
            diagnostics=describe(prior, posterior, dropped_mass=q.dropped),
        )


@dataclass(frozen=True)
class Hard(Objective):
    """E_p[log f]: hard attention, the ELBO with q = p (its KL is 0). With `pathwise`, the Jensen phase."""

    estimator: Estimator = field(default_factory=Enumerate)

    def _bound(self, problem: AlignmentProblem, generator: torch.Generator | None) -> Bound:
        prior = problem.prior
        p = self.estimator.narrow(prior)
        expected = self.estimator(p.part, problem.likelihood, prior=prior, generator=generator)
        return _without_kl(expected.value, expected.surrogate, describe(prior, dropped_mass=p.dropped))


@dataclass(frozen=True)
class Wake(Objective):
    """θ by the exact marginal, φ by Σ_i r_i log q_i with the exact responsibilities r_i ∝ p_i f_i.

    Reweighted wake-sleep in the limit of enumeration: it trains q without letting it disturb θ, and is the
    phase that q needs before the ELBO moves θ. The reported value is the log marginal; `kl` is KL[q‖p].
    """

    prune: float = 0.0

    def __post_init__(self) -> None:
        check_fraction("prune", self.prune, hint="0 enumerates all positions, 0.01 is a good start")

    @property
    def needs_posterior(self) -> bool:
        return True

    def _bound(self, problem: AlignmentProblem, generator: torch.Generator | None) -> Bound:
        prior, q = discrete_only(problem.prior, self), discrete_only(problem.posterior, self)
        exact = exact_marginal(prior, problem.likelihood, prune=self.prune)
        fit = exact.posterior.expect(q.log_terms())
        return Bound(
            value=exact.value,
            surrogate=exact.surrogate + fit - fit.detach(),
            log_likelihood=exact.expected_log_f,
            kl=q.detach().kl(prior.detach()),
            diagnostics=describe(prior, q, dropped_mass=exact.dropped, posterior_fit=fit),
        )


@dataclass(frozen=True)
class StochasticEM(Objective):
    """The ELBO with q by Bayes' rule from a cheap f in place of an inference network: q_i ∝ p_i f̂_i.

    f̂ is f with a normaliser over a shortlist: an example's own outputs and the `shortlist` likeliest other values under
    soft attention. So q costs a small part of S evaluations of f. If all output values are on the list, or the
    likelihood knows no cheaper way, q is the exact posterior and the gradient that of the log marginal: a step of EM,
    by samples. Nothing is learnt through q.
    """

    shortlist: int = 64
    estimator: Estimator = field(default_factory=lambda: Reinforce(baseline=NoBaseline()))

    def __post_init__(self) -> None:
        check_count("shortlist", self.shortlist, hint="64 output values are a good start")

    @torch.no_grad()
    def posterior(self, problem: AlignmentProblem) -> DiscreteLatent:
        """q by Bayes' rule from the prior and f̂, without a graph."""
        # detached: a chain's posterior has the prior's own transitions
        prior = discrete_only(problem.prior, self).detach()
        log_f = problem.likelihood.by_shortlist(
            prior.mean(), prior.support, size=self.shortlist, steps=problem.steps
        )
        return prior.marginalise(log_f).posterior

    def _bound(self, problem: AlignmentProblem, generator: torch.Generator | None) -> Bound:
        found = replace(problem, posterior=self.posterior(problem))
        return Elbo(self.estimator)(found, generator=generator)


@dataclass(frozen=True)
class StochasticVI(Objective):
    """The ELBO over free parameters λ of each output's own q, after `steps` of gradient ascent on them.

    `start` = "prior" is SVI: λ begins at the prior's scores and the result is a constant for θ. `start` =
    "posterior" is semi-amortised inference: λ begins at the inference network's scores, and the gradient runs
    through the steps back into it. Enumerating, f is evaluated once and the steps are almost free.
    Reference: Hoffman et al. 2013; Kim et al. 2018.
    """

    steps: int = 10
    learning_rate: float = 1.0
    start: Literal["prior", "posterior"] = "prior"
    estimator: Estimator = field(default_factory=Enumerate)

    def __post_init__(self) -> None:
        check_count("steps", self.steps, hint="10 steps are a good start")
        check_positive("learning_rate", self.learning_rate, hint="try 1.0")
        if self.start not in ("prior", "posterior"):
            raise ConfigError(f"start: expected prior or posterior, received {self.start!r}; try prior")

    @property
    def needs_posterior(self) -> bool:
        return self.start == "posterior"

    def _bound(self, problem: AlignmentProblem, generator: torch.Generator | None) -> Bound:
        prior = discrete_only(problem.prior, self)
        begin = discrete_only(problem.posterior, self) if self.needs_posterior else prior.detach()
        amortised = self.needs_posterior and torch.is_grad_enabled()
        prepared = self.estimator.prepare(problem.likelihood, prior.support)
        frozen = prior.detach()
        # the steps need a graph of their own, wherever they run: also within torch.inference_mode
        with torch.inference_mode(False), torch.enable_grad():
            scores = begin.free_scores()
            for _ in range(self.steps):
                scores = scores if amortised and scores.requires_grad else scores.detach().requires_grad_()
                q = begin.by_scores(scores)
                expected = prepared.estimator(q, prepared.without_graph, prior=frozen, generator=generator)
                ascent = (expected.surrogate - q.kl(frozen)).sum()
                (slope,) = torch.autograd.grad(ascent, scores, create_graph=amortised)
                scores = scores + self.learning_rate * slope
        q = begin.by_scores(scores if amortised else scores.detach())
        found = replace(problem, likelihood=prepared.with_graph, posterior=q)
        return Elbo(self.estimator)(found, generator=generator)


def _without_kl(value: Tensor, surrogate: Tensor, diagnostics: dict[str, Tensor]) -> Bound:
    return Bound(value, surrogate, value, torch.zeros_like(value), diagnostics)


def discrete_only(latent: Latent | None, objective: Objective) -> DiscreteLatent:
    assert latent is not None
    place = f"objective: {type(objective).__name__}"
    return latent.discrete(place, instead="use soft, hard or variational with the pathwise estimator")


def _stateful_parts(part: object) -> Iterator[nn.Module]:
    if isinstance(part, nn.Module):
        yield part
    elif is_dataclass(part):
        for item in fields(part):
            yield from _stateful_parts(getattr(part, item.name))
