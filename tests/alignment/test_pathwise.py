"""Pathwise gradients of relaxed alignments against finite differences of the expectation itself.

The expectation is an integral over the simplex of two positions, done by quadrature. Each comparison of a
sampled mean allows 5 standard errors: a right estimator fails for one seed in 1.7 million.
"""

import math

import pytest
import torch
from torch import Tensor

from latentalign.alignment import (
    AlignmentProblem,
    ContextLikelihood,
    Dirichlet,
    Elbo,
    Hard,
    LogisticNormal,
    Normal,
    Pathwise,
)
from latentalign.alignment.likelihoods.likelihood import Likelihood
from tests import integrals, oracles
from tests.alignment import problems

DRAWS = 20_000
DOUBLE = torch.float64
ERRORS = 5.0


def log_f(problem: problems.Problem):
    """log f as a function of z_1, for a memory of two positions."""
    plain = problem.plain()
    arguments = plain.values[0], plain.queries[0][0], plain.weight, plain.targets[0][0]
    return lambda z: float(oracles.log_likelihood(*arguments, [z, 1 - z]))


def per_sample_gradients(problem: problems.Problem, scores: Tensor, build) -> tuple[Tensor, Tensor]:
    """Values and gradients in the scores of DRAWS independent estimates, put along the batch."""
    many = scores.expand(DRAWS, 1, 2).detach().requires_grad_()
    f = ContextLikelihood(
        problem.head,
        problem.values.expand(DRAWS, -1, -1),
        problem.queries.expand(DRAWS, -1, -1),
        problem.targets.expand(DRAWS, -1),
    )
    distribution = build(many)
    found = Pathwise()(distribution, f, prior=distribution, generator=torch.Generator().manual_seed(0))
    (slopes,) = torch.autograd.grad(found.surrogate.sum(), many)
    return found.value[:, 0], slopes[:, 0]


def assert_within_errors(sample: Tensor, expected: float) -> None:
    error = float(sample.std()) / math.sqrt(DRAWS)
    assert abs(float(sample.mean()) - expected) < ERRORS * error
    assert error < 0.1 * max(1.0, abs(expected))  # the comparison can tell something


@pytest.mark.parametrize("seed", range(3))
def test_dirichlet_gradient_is_that_of_the_expectation(seed: int) -> None:
    problem = problems.single(seed, size=2)
    g = log_f(problem)
    scores = torch.tensor([[[0.9, 0.4]]], dtype=DOUBLE)

    def expectation(first: float, second: float) -> float:
        return integrals.beta_expectation(math.exp(first), math.exp(second), g, points=1000)

    values, slopes = per_sample_gradients(problem, scores, Dirichlet.from_scores)
    assert_within_errors(values, expectation(0.9, 0.4))
    assert_within_errors(slopes[:, 0], integrals.central_difference(lambda s: expectation(s, 0.4), 0.9))
    assert_within_errors(slopes[:, 1], integrals.central_difference(lambda s: expectation(0.9, s), 0.4))


@pytest.mark.parametrize("seed", range(3))
def test_logistic_normal_gradient_is_that_of_the_expectation(seed: int) -> None:
    problem = problems.single(seed, size=2)
    g = log_f(problem)
    scores = torch.tensor([[[0.9, 0.4]]], dtype=DOUBLE)
    scale = torch.tensor([0.5, 1.2], dtype=DOUBLE)
    deviation = math.sqrt(0.5**2 + 1.2**2)

    def expectation(first: float, second: float) -> float:
        return integrals.normal_expectation(
            first - second, deviation, lambda u: g(1 / (1 + math.exp(-u))), points=1000
        )

    values, slopes = per_sample_gradients(
        problem, scores, lambda many: LogisticNormal.from_scores(many, scale=scale)
    )
    assert_within_errors(values, expectation(0.9, 0.4))
    assert_within_errors(slopes[:, 0], integrals.central_difference(lambda s: expectation(s, 0.4), 0.9))
    assert_within_errors(slopes[:, 1], integrals.central_difference(lambda s: expectation(0.9, s), 0.4))


@pytest.mark.parametrize("family", [Dirichlet, LogisticNormal])
def test_relaxed_bound_is_the_estimate_minus_the_closed_form_kl(family) -> None:
    problem = problems.make(0, lengths=(4, 2))
    prior = family.from_scores(problem.prior_scores, problem.mask)
    posterior = family.from_scores(problem.posterior_scores, problem.mask)
    bound = Elbo(Pathwise(samples=3))(
        AlignmentProblem(prior, problem.likelihood(), posterior=posterior),
        generator=torch.Generator().manual_seed(1),
    )
    z = posterior.rsample(3, torch.Generator().manual_seed(1))
    expected = problem.likelihood().mixture(z).mean(dim=0) - posterior.kl(prior)
    torch.testing.assert_close(bound.value, expected.detach())
    torch.testing.assert_close(bound.surrogate, bound.value)
    gradients = problem.gradients(bound.surrogate.sum())
    for name in ("prior_scores", "posterior_scores"):
        assert (gradients[name].abs() > 0).equal(problem.mask[:, None].expand(2, 2, 4))


def test_logistic_normal_bound_passes_gradcheck_at_fixed_noise() -> None:
    problem = problems.make(0, lengths=(3, 2), steps=1)

    def value(prior_scores: Tensor, posterior_scores: Tensor, values: Tensor) -> Tensor:
        f = ContextLikelihood(problem.head, values, problem.queries, problem.targets)
        return Elbo(Pathwise(samples=2))(
            AlignmentProblem(
                LogisticNormal.from_scores(prior_scores, problem.mask, scale=0.8),
                f,
                posterior=LogisticNormal.from_scores(posterior_scores, problem.mask, scale=1.1),
            ),
            generator=torch.Generator().manual_seed(0),
        ).surrogate

    inputs = problem.prior_scores, problem.posterior_scores, problem.values
    assert torch.autograd.gradcheck(value, inputs)


class Quadratic(Likelihood):
    """log f(z) = −½ ‖z − target‖², whose expectation under a Gaussian has a closed form."""

    def __init__(self, target: Tensor) -> None:
        self.target = target  # [B,T,D]

    def pairs(self, example: Tensor, step: Tensor, position: Tensor) -> Tensor:
        raise NotImplementedError

    def mixture(self, z: Tensor) -> Tensor:
        return -0.5 * ((z - self.target) ** 2).sum(dim=-1)


def test_gaussian_latent_gradient_is_that_of_the_closed_form() -> None:
    loc = torch.tensor([[[0.5, -1.0]]], dtype=DOUBLE).expand(DRAWS, 1, 2).requires_grad_()
    scale = torch.tensor([[[0.7, 1.3]]], dtype=DOUBLE).expand(DRAWS, 1, 2).requires_grad_()
    posterior = Normal(loc, scale)
    f = Quadratic(torch.tensor([[[1.5, 0.25]]], dtype=DOUBLE))
    bound = Elbo(Pathwise())(
        AlignmentProblem(Normal.standard_like(posterior), f, posterior=posterior),
        generator=torch.Generator().manual_seed(0),
    )
    slopes = torch.autograd.grad(bound.surrogate.sum(), (loc, scale))
    # E = −½ Σ (μ − t)² + σ², KL = ½ Σ μ² + σ² − 1 − log σ²
    for d, (mean, deviation, target) in enumerate(((0.5, 0.7, 1.5), (-1.0, 1.3, 0.25))):
        assert_within_errors(slopes[0][:, 0, d], target - 2 * mean)
        assert_within_errors(slopes[1][:, 0, d], 1 / deviation - 2 * deviation)
    value = sum(
        -0.5 * ((m - t) ** 2 + s**2) - 0.5 * (m**2 + s**2 - 1 - 2 * math.log(s))
        for m, s, t in ((0.5, 0.7, 1.5), (-1.0, 1.3, 0.25))
    )
    assert_within_errors(bound.value[:, 0], value)


def test_the_jensen_phase_is_hard_attention_by_pathwise_samples() -> None:
    problem = problems.make(0)
    prior = Dirichlet.from_scores(problem.prior_scores, problem.mask)
    bound = Hard(Pathwise(samples=4))(
        AlignmentProblem(prior, problem.likelihood()), generator=torch.Generator().manual_seed(2)
    )
    z = prior.rsample(4, torch.Generator().manual_seed(2))
    torch.testing.assert_close(bound.value, problem.likelihood().mixture(z).mean(dim=0).detach())
    assert (bound.kl == 0).all()
