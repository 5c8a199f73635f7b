"""The Gaussian context against quadrature over the plane, torch's own Gaussians, and soft attention.

Sampled means are allowed 5 standard errors: a right estimator fails for one seed in 1.7 million.
"""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from latentalign.alignment import (
    AlignmentProblem,
    Categorical,
    ConfigError,
    ContextLikelihood,
    Elbo,
    Enumerate,
    Exact,
    GaussianContext,
    Hard,
    KMax,
    Marginal,
    Normal,
    Pathwise,
    Sampled,
    ShapeError,
    Soft,
    SoftContext,
    SoftmaxHead,
    VectorLikelihood,
)
from tests.integrals import normal_expectation

DRAWS = 40_000
POINTS = 100  # quarters of a deviation: for a smooth function the trapezoid rule is exact to ten digits
WEIGHT = [[1.5, -0.7], [-0.4, 1.1], [0.3, 0.8]]  # [V,D]
TARGETS = [[2, 0]]
MASK = torch.tensor([[True, True, True, False]])


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


VALUES, QUERIES = random(1, 4, 2, seed=1), random(1, 2, 2, seed=2)


def distribution(seed: int) -> GaussianContext:
    attention = Categorical.from_scores(random(1, 2, 4, seed=seed), MASK)
    return GaussianContext.around(attention, VALUES, 0.2 + random(1, 2, 2, seed=seed + 1).abs())


PRIOR, POSTERIOR = distribution(10), distribution(20)


def head() -> SoftmaxHead:
    output = torch.nn.Linear(2, 3, bias=False, dtype=torch.float64)
    output.weight = torch.nn.Parameter(torch.tensor(WEIGHT, dtype=torch.float64))
    return SoftmaxHead(output)


def likelihood(values: Tensor = VALUES, queries: Tensor = QUERIES) -> VectorLikelihood:
    targets = torch.tensor(TARGETS).expand(queries.shape[0], -1)
    return VectorLikelihood(head(), values, queries, targets)


def log_f(step: int, first: float, second: float) -> float:
    """log softmax(W tanh(c + q)) of the observed output, in plain floats."""
    hidden = [math.tanh(c + float(QUERIES[0, step, d])) for d, c in enumerate((first, second))]
    logits = [sum(w * h for w, h in zip(row, hidden, strict=True)) for row in WEIGHT]
    return logits[TARGETS[0][step]] - math.log(sum(math.exp(logit) for logit in logits))


def expectation(of: GaussianContext, step: int, function: Callable[[float, float], float]) -> float:
    (m1, m2), (s1, s2) = of.loc[0, step].tolist(), of.scale[0, step].tolist()
    inner = lambda c: normal_expectation(m2, s2, lambda d: function(c, d), POINTS)  # noqa: E731
    return normal_expectation(m1, s1, inner, POINTS)


def log_marginals() -> list[float]:
    return [math.log(expectation(PRIOR, t, lambda c, d, t=t: math.exp(log_f(t, c, d)))) for t in range(2)]


def many(of: GaussianContext) -> GaussianContext:
    """The same distribution DRAWS times along the batch, so that estimates can be told apart."""
    wide = [tensor.expand(DRAWS, -1, -1) for tensor in (of.loc, of.scale)]
    attention = Categorical(
        of.attention.log_probs.expand(DRAWS, -1, -1), of.attention.support.expand(DRAWS, -1, -1)
    )
    return GaussianContext(*wide, attention)


def within_errors(sample: Tensor, expected: float) -> bool:
    error = float(sample.std()) / math.sqrt(len(sample))
    assert error < 0.01  # the comparison can tell something
    return abs(float(sample.mean()) - expected) < 5 * error


def test_the_mean_is_the_expected_value_of_attention() -> None:
    probs, loc = PRIOR.attention.probs, PRIOR.mean()
    for t in range(2):
        for d in range(2):
            by_hand = sum(float(probs[0, t, s] * VALUES[0, s, d]) for s in range(3))
            assert float(loc[0, t, d]) == pytest.approx(by_hand)


def test_attention_stays_an_alignment() -> None:
    for latent in (PRIOR, PRIOR.detach()):
        torch.testing.assert_close(latent.alignment_probs(), PRIOR.attention.probs)
        torch.testing.assert_close(latent.alignment_entropy(), PRIOR.attention.entropy())
    bound = Elbo(Pathwise())(AlignmentProblem(PRIOR, likelihood(), posterior=POSTERIOR))
    torch.testing.assert_close(bound.diagnostics["prior_entropy"], PRIOR.attention.entropy())
    torch.testing.assert_close(bound.diagnostics["posterior_entropy"], POSTERIOR.attention.entropy())


def test_kl_and_density_are_those_of_torch() -> None:
    q, p = (torch.distributions.Normal(of.loc, of.scale) for of in (POSTERIOR, PRIOR))
    torch.testing.assert_close(POSTERIOR.kl(PRIOR), torch.distributions.kl_divergence(q, p).sum(-1))
    z = random(3, 1, 2, 2, seed=5)
    torch.testing.assert_close(PRIOR.log_prob(z), p.log_prob(z).sum(-1))


def test_samples_average_to_the_integral_over_the_plane() -> None:
    drawn = PRIOR.rsample(DRAWS, torch.Generator().manual_seed(0))
    f = likelihood().mixture(drawn).detach().exp()  # [K,1,2]
    generator = torch.Generator().manual_seed(0)
    predicted = Sampled(DRAWS).log_likelihood(PRIOR, likelihood(), generator=generator).detach()
    for step, value in enumerate(log_marginals()):
        assert within_errors(f[:, 0, step], math.exp(value))
        assert float(predicted[0, step]) == pytest.approx(value, abs=0.02)


def test_the_bound_is_the_integral_minus_the_kl_and_below_the_marginal() -> None:
    f = likelihood(VALUES.expand(DRAWS, -1, -1), QUERIES.expand(DRAWS, -1, -1))
    generator = torch.Generator().manual_seed(0)
    found = Elbo(Pathwise())(
        AlignmentProblem(many(PRIOR), f, posterior=many(POSTERIOR)), generator=generator
    ).value
    kl = torch.distributions.kl_divergence(
        *(torch.distributions.Normal(of.loc, of.scale) for of in (POSTERIOR, PRIOR))
    ).sum(-1)
    for step, marginal in enumerate(log_marginals()):
        exact = expectation(POSTERIOR, step, lambda c, d, t=step: log_f(t, c, d)) - float(kl[0, step])
        assert within_errors(found[:, step], exact)
        assert exact < marginal
        hard = expectation(PRIOR, step, lambda c, d, t=step: log_f(t, c, d))
        assert hard < marginal


def test_soft_is_ordinary_soft_attention() -> None:
    ordinary = ContextLikelihood(head(), VALUES, QUERIES, torch.tensor(TARGETS))
    expected = Soft()(AlignmentProblem(PRIOR.attention, ordinary)).value
    torch.testing.assert_close(Soft()(AlignmentProblem(PRIOR, likelihood())).value, expected)
    torch.testing.assert_close(SoftContext().log_likelihood(PRIOR, likelihood()).detach(), expected)
    torch.testing.assert_close(
        SoftContext().log_probs(PRIOR, likelihood()), SoftContext().log_probs(PRIOR.attention, ordinary)
    )


def test_sampled_log_probs_are_normalised_and_agree_with_scores() -> None:
    scores, log_probs = (
        method(PRIOR, likelihood(), generator=torch.Generator().manual_seed(4))
        for method in (Sampled(7).log_likelihood, Sampled(7).log_probs)
    )
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(1, 2, dtype=torch.float64))
    torch.testing.assert_close(log_probs.gather(-1, torch.tensor(TARGETS)[..., None])[..., 0], scores)


@pytest.mark.parametrize("objective", ["elbo", "hard"])
def test_pathwise_passes_gradcheck_at_fixed_noise(objective: str) -> None:
    def bound(
        scores: Tensor, values: Tensor, queries: Tensor, scale: Tensor, other: Tensor, deviation: Tensor
    ) -> Tensor:
        prior = GaussianContext.around(Categorical.from_scores(scores, MASK), values, scale)
        posterior = GaussianContext.around(Categorical.from_scores(other, MASK), values, deviation)
        generator = torch.Generator().manual_seed(3)
        f = likelihood(values, queries)
        if objective == "hard":
            return Hard(Pathwise(samples=2))(AlignmentProblem(prior, f), generator=generator).surrogate
        return Elbo(Pathwise(samples=2))(
            AlignmentProblem(prior, f, posterior=posterior), generator=generator
        ).surrogate

    inputs = [random(1, 2, 4, seed=6), VALUES, QUERIES, PRIOR.scale, random(1, 2, 4, seed=7), POSTERIOR.scale]
    assert torch.autograd.gradcheck(bound, [tensor.clone().requires_grad_() for tensor in inputs])


REFUSED = {
    "exact": lambda: Exact().log_likelihood(PRIOR, likelihood()),
    "kmax": lambda: KMax(2).log_probs(PRIOR, likelihood()),
    "marginal": lambda: Marginal()(AlignmentProblem(PRIOR, likelihood())),
    "enumerate": lambda: Elbo(Enumerate())(AlignmentProblem(PRIOR, likelihood(), posterior=POSTERIOR)),
    "positions": lambda: likelihood().everywhere(torch.ones(1, 2, 4, dtype=torch.bool)),
    "predicted positions": lambda: likelihood().log_probs_pairs(*torch.zeros(3, 1, dtype=torch.long)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_nothing_enumerates_a_gaussian(name: str) -> None:
    with pytest.raises(ConfigError, match=r"pathwise|sample:N") as found:
        REFUSED[name]()
    assert "\n" not in str(found.value)


def test_shapes_are_checked() -> None:
    with pytest.raises(ShapeError, match=r"z: .*D=2"):
        likelihood().mixture(torch.zeros(1, 2, 4, dtype=torch.float64))
    with pytest.raises(ShapeError, match="prior: expected shape"):
        Soft()(AlignmentProblem(PRIOR.attention, likelihood()))
    with pytest.raises(ShapeError, match="attention"):
        GaussianContext.around(PRIOR.attention, VALUES[:, :3], PRIOR.scale)


def test_a_plain_gaussian_aligns_to_nothing() -> None:
    with pytest.raises(ConfigError, match="aligns to none"):
        Normal(PRIOR.loc, PRIOR.scale).alignment_probs()
    assert type(Normal.standard_like(PRIOR)) is Normal
