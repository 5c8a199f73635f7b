"""Training objectives, maximised, per output. Each is one small object; the model never learns which runs."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from latentalign.alignment.bound import Bound, describe
from latentalign.alignment.checks import check_count, check_fraction, check_positive
from latentalign.alignment.distributions import Categorical, Latent, check_family
from latentalign.alignment.errors import ConfigError
from latentalign.alignment.estimators import Enumerate, Estimator
from latentalign.alignment.likelihood import Likelihood, TableLikelihood
from latentalign.alignment.marginal import exact_marginal
from latentalign.alignment.masks import zero_where_masked


class Objective(ABC):
    """objective(prior, likelihood, posterior=…) -> Bound, all of shape [B,T]."""

    @property
    def needs_posterior(self) -> bool:
        """Whether a posterior q(z|x,y) has to be given."""
        return False

    def __call__(
        self,
        prior: Latent,
        likelihood: Likelihood,
        *,
        posterior: Latent | None = None,
        generator: torch.Generator | None = None,
    ) -> Bound:
        """The bound of this objective; `generator` makes its samples repeatable."""
        name = type(self).__name__
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
        likelihood.check_fit(prior.shape)
        if posterior is not None:
            check_family(posterior, prior)
        if isinstance(posterior, Categorical) and isinstance(prior, Categorical):
            posterior = posterior.within(prior.support)
        return self._bound(prior, likelihood, posterior, generator)

    @abstractmethod
    def _bound(
        self,
        prior: Latent,
        likelihood: Likelihood,
        posterior: Latent | None,
        generator: torch.Generator | None,
    ) -> Bound: ...

    def modules(self) -> Iterator[nn.Module]:
        """Parts with a state of their own (a running mean), which a checkpoint must keep."""
        yield from _stateful_parts(self)


@dataclass(frozen=True)
class Soft(Objective):
    """log f(x, E_p[z]): ordinary attention. One evaluation of f."""

    def _bound(
        self,
        prior: Latent,
        likelihood: Likelihood,
        posterior: Latent | None,
        generator: torch.Generator | None,
    ) -> Bound:
        value = likelihood.mixture(prior.mean())
        return _without_kl(value.detach(), value, describe(prior))


@dataclass(frozen=True)
class Marginal(Objective):
    """log Σ_i p_i f_i: the exact log marginal likelihood. S evaluations of f, or a few with `prune` = ε.

    Pruned, the reported value is a lower bound and `dropped_mass` bounds the responsibility whose gradient
    was left out.
    """

    prune: float = 0.0

    def __post_init__(self) -> None:
        check_fraction("prune", self.prune, hint="0 enumerates all positions, 0.01 is a good start")

    def _bound(
        self,
        prior: Latent,
        likelihood: Likelihood,
        posterior: Latent | None,
        generator: torch.Generator | None,
    ) -> Bound:
        exact = exact_marginal(categorical_only(prior, self), likelihood, prune=self.prune)
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

    def _bound(
        self,
        prior: Latent,
        likelihood: Likelihood,
        posterior: Latent | None,
        generator: torch.Generator | None,
    ) -> Bound:
        assert posterior is not None
        narrower, dropped = self.estimator.narrow(posterior)
        expected = self.estimator(narrower, likelihood, prior=prior, generator=generator)
        kl = narrower.kl(prior)
        surrogate = expected.surrogate - kl
        if narrower is not posterior:
            latents = (categorical_only(latent, self) for latent in (prior, posterior, narrower))
            surrogate = surrogate + _towards_the_rest(*latents)
        return Bound(
            value=expected.value - kl.detach(),
            surrogate=surrogate,
            log_likelihood=expected.value,
            kl=kl.detach(),
            diagnostics=describe(prior, posterior, dropped_mass=dropped),
        )


def _towards_the_rest(prior: Categorical, whole: Categorical, part: Categorical) -> Tensor:
    """0, with the gradient that takes the prior from a part of q to the whole of it."""
    left_out = (whole.probs - part.probs).detach()
    # a sparse prior cannot follow to where it is 0
    possible = prior.log_probs.detach() > -torch.inf
    pull = (left_out * zero_where_masked(prior.log_probs, possible)).sum(dim=-1)
    return pull - pull.detach()


@dataclass(frozen=True)
class Hard(Objective):
    """E_p[log f]: hard attention, the ELBO with q = p (its KL is 0). With `pathwise`, the Jensen phase."""

    estimator: Estimator = field(default_factory=Enumerate)

    def _bound(
        self,
        prior: Latent,
        likelihood: Likelihood,
        posterior: Latent | None,
        generator: torch.Generator | None,
    ) -> Bound:
        narrower, dropped = self.estimator.narrow(prior)
        expected = self.estimator(narrower, likelihood, prior=prior, generator=generator)
        return _without_kl(expected.value, expected.surrogate, describe(prior, dropped_mass=dropped))


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

    def _bound(
        self,
        prior: Latent,
        likelihood: Likelihood,
        posterior: Latent | None,
        generator: torch.Generator | None,
    ) -> Bound:
        q = categorical_only(posterior, self)
        exact = exact_marginal(categorical_only(prior, self), likelihood, prune=self.prune)
        fit = (exact.responsibilities * zero_where_masked(q.log_probs, q.support)).sum(dim=-1)
        return Bound(
            value=exact.value,
            surrogate=exact.surrogate + fit - fit.detach(),
            log_likelihood=exact.expected_log_f,
            kl=q.detach().kl(prior.detach()),
            diagnostics=describe(prior, q, dropped_mass=exact.dropped, posterior_fit=fit),
        )


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

    def _bound(
        self,
        prior: Latent,
        likelihood: Likelihood,
        posterior: Latent | None,
        generator: torch.Generator | None,
    ) -> Bound:
        prior = categorical_only(prior, self)
        amortised = self.needs_posterior and torch.is_grad_enabled()
        begin = categorical_only(posterior, self) if self.needs_posterior else prior.detach()
        likelihood = self.estimator.prepare(likelihood, prior.support)
        frozen_f, frozen_p = likelihood.detach(), prior.detach()
        # a table has all values of f already: nothing is gained by pruning
        in_steps = Enumerate() if isinstance(frozen_f, TableLikelihood) else self.estimator
        # the steps need a graph of their own, wherever they run: also within torch.inference_mode
        with torch.inference_mode(False), torch.enable_grad():
            scores = zero_where_masked(begin.log_probs, begin.support)
            for _ in range(self.steps):
                scores = scores if amortised and scores.requires_grad else scores.detach().requires_grad_()
                q = Categorical.from_scores(scores, prior.support)
                expected = in_steps(q, frozen_f, prior=frozen_p, generator=generator)
                ascent = (expected.surrogate - q.kl(frozen_p)).sum()
                (slope,) = torch.autograd.grad(ascent, scores, create_graph=amortised)
                scores = scores + self.learning_rate * slope
        q = Categorical.from_scores(scores if amortised else scores.detach(), prior.support)
        return Elbo(self.estimator)(prior, likelihood, posterior=q, generator=generator)


def _without_kl(value: Tensor, surrogate: Tensor, diagnostics: dict[str, Tensor]) -> Bound:
    return Bound(value, surrogate, value, torch.zeros_like(value), diagnostics)


def categorical_only(latent: Latent | None, objective: Objective) -> Categorical:
    if not isinstance(latent, Categorical):
        raise ConfigError(
            f"objective: {type(objective).__name__} expected a categorical alignment, received "
            f"{type(latent).__name__}; use soft, hard or variational with the pathwise estimator"
        )
    return latent


def _stateful_parts(part: object) -> Iterator[nn.Module]:
    if isinstance(part, nn.Module):
        yield part
    elif is_dataclass(part):
        for item in fields(part):
            yield from _stateful_parts(getattr(part, item.name))
