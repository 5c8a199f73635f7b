"""dtype kept, seeds repeat, and scores of ±1e4 give neither NaN nor infinity."""

import pytest
import torch

from latentalign.alignment import (
    AlignmentProblem,
    Categorical,
    Dirichlet,
    Elbo,
    Enumerate,
    Exact,
    Hard,
    KMax,
    LogisticNormal,
    Marginal,
    Pathwise,
    Sampled,
    SoftContext,
    Wake,
)
from tests.alignment import problems
from tests.alignment.choices import EVERY, RELAXED, SAMPLED, changed, objective_of, seeded
from tests.alignment.problems import Problem, evaluate

PREDICTORS = [Exact(), KMax(2), Sampled(3), SoftContext()]


def parts(bound) -> list[torch.Tensor]:
    return [bound.value, bound.surrogate, bound.log_likelihood, bound.kl, *bound.diagnostics.values()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", EVERY)
def test_objectives_keep_the_dtype(name: str, dtype: torch.dtype) -> None:
    problem = problems.make(0, dtype=dtype)
    bound = evaluate(problem, objective_of(name), generator=seeded())
    assert {part.dtype for part in parts(bound)} == {dtype}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distributions_and_predictions_keep_the_dtype(dtype: torch.dtype) -> None:
    problem = problems.make(0, dtype=dtype)
    found = [problem.prior(name).probs for name in ("softmax", "sparsemax", "entmax15")]
    found += [problem.prior().relaxed_sample(1, 0.5), problem.prior().entropy()]
    for build in RELAXED.values():
        relaxed = build(problem.prior_scores, problem.mask)
        found += [relaxed.mean(), relaxed.rsample(1), relaxed.kl(relaxed), relaxed.alignment_entropy()]
        found += [relaxed.log_prob(relaxed.rsample(1))]
    for predictor in PREDICTORS:
        found += [
            predictor.log_likelihood(problem.prior(), problem.likelihood()),
            predictor.log_probs(problem.prior(), problem.likelihood()),
        ]
    assert {tensor.dtype for tensor in found} == {dtype}


@pytest.mark.parametrize("name", SAMPLED)
def test_the_same_seed_gives_the_same_result_and_another_seed_another(name: str) -> None:
    problem = problems.make(0, lengths=(5, 4, 3), steps=4, spread=0.5)

    def run(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        bound = evaluate(problem, objective_of(name), generator=seeded(seed))
        return bound.value, problem.gradients(bound.surrogate.sum())["prior_scores"]

    torch.manual_seed(1)
    first = run(7)
    torch.manual_seed(2)  # the global generator plays no part
    second = run(7)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first[0], run(8)[0])


@pytest.mark.parametrize("family", RELAXED)
def test_relaxed_samples_repeat_with_the_seed(family: str) -> None:
    problem = problems.make(0)
    relaxed = RELAXED[family](problem.prior_scores, problem.mask)
    assert torch.equal(relaxed.rsample(2, seeded(3)), relaxed.rsample(2, seeded(3)))
    assert not torch.equal(relaxed.rsample(2, seeded(3)), relaxed.rsample(2, seeded(4)))


def test_sampled_predictions_repeat_with_the_seed() -> None:
    problem = problems.make(0, lengths=(5, 4), steps=4, spread=0.5)

    def score(seed: int) -> torch.Tensor:
        return Sampled(2).log_likelihood(problem.prior(), problem.likelihood(), generator=seeded(seed))

    assert torch.equal(score(3), score(3))
    assert not torch.equal(score(3), score(4))


# ------------------------------------------------------------------------------------------ extreme scores


def extreme(seed: int, dtype: torch.dtype) -> Problem:
    """Scores of ±1e4 in every combination that a coin gives, and outputs as sure of themselves."""
    problem = problems.make(seed, lengths=(4, 3, 1), steps=3, dtype=dtype)
    return changed(
        problem,
        prior_scores=1e4 * problem.prior_scores.sign(),
        posterior_scores=1e4 * problem.posterior_scores.sign(),
        weight=1e4 * problem.weight.sign(),
    )


def assert_finite(problem: Problem, bound) -> None:
    assert all(torch.isfinite(part).all() for part in parts(bound))
    for name, slope in problem.gradients(bound.surrogate.sum()).items():
        assert torch.isfinite(slope).all(), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", EVERY)
def test_extreme_scores_stay_finite(name: str, dtype: torch.dtype) -> None:
    for seed in range(4):
        problem = extreme(seed, dtype)
        assert_finite(problem, evaluate(problem, objective_of(name), generator=seeded()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("normalizer", ["sparsemax", "entmax15"])
def test_extreme_scores_stay_finite_with_sparse_priors(normalizer: str, dtype: torch.dtype) -> None:
    for seed in range(4):
        problem = extreme(seed, dtype)
        prior, f = problem.prior(normalizer), problem.likelihood()
        for bound in (
            Marginal()(AlignmentProblem(prior, f)),
            Marginal(prune=0.01)(AlignmentProblem(prior, f)),
            Hard()(AlignmentProblem(prior, f)),
            Elbo()(AlignmentProblem(prior, f, posterior=problem.posterior())),
            Elbo(Enumerate(prune=0.01))(AlignmentProblem(prior, f, posterior=problem.posterior())),
            Wake()(AlignmentProblem(prior, f, posterior=problem.posterior())),
        ):
            assert_finite(problem, bound)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", RELAXED)
def test_extreme_scores_stay_finite_in_relaxed_bounds(family: str, dtype: torch.dtype) -> None:
    for seed in range(4):
        problem = extreme(seed, dtype)
        prior = RELAXED[family](problem.prior_scores, problem.mask)
        posterior = RELAXED[family](problem.posterior_scores, problem.mask)
        assert_finite(
            problem,
            Elbo(Pathwise(samples=2))(
                AlignmentProblem(prior, problem.likelihood(), posterior=posterior), generator=seeded()
            ),
        )
        assert_finite(
            problem, Hard(Pathwise())(AlignmentProblem(prior, problem.likelihood()), generator=seeded())
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("predictor", PREDICTORS, ids=repr)
def test_extreme_scores_stay_finite_in_predictions(predictor, dtype: torch.dtype) -> None:
    for seed in range(4):
        problem = extreme(seed, dtype)
        for values in (
            predictor.log_likelihood(problem.prior(), problem.likelihood(), generator=seeded()),
            predictor.log_probs(problem.prior(), problem.likelihood(), generator=seeded()),
        ):
            assert torch.isfinite(values).all()
            slopes = problem.gradients(values.sum())
            assert all(torch.isfinite(slope).all() for slope in slopes.values())


def test_extreme_scores_still_mean_what_they_say() -> None:
    scores = torch.tensor([[[1e4, -1e4, 1e4]]], dtype=torch.float64)
    assert Categorical.from_scores(scores).probs.tolist() == [[[0.5, 0.0, 0.5]]]
    assert Categorical.from_scores(scores).kl(Categorical.from_scores(-scores)).item() > 1e4
    torch.testing.assert_close(Dirichlet.from_scores(scores).mean()[0, 0, 0].item(), 0.5, atol=1e-6, rtol=0)
    torch.testing.assert_close(LogisticNormal.from_scores(scores).mean().tolist(), [[[0.5, 0.0, 0.5]]])
