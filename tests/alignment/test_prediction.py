"""Predictions by enumeration, by the K likeliest positions, by samples and by the soft context."""

import math

import pytest
import torch

from latentalign.alignment import (
    AlignmentProblem,
    Categorical,
    Dirichlet,
    Exact,
    KMax,
    Marginal,
    Sampled,
    ShapeError,
    SoftContext,
)
from tests import oracles
from tests.alignment import problems
from tests.alignment.problems import EXACT, Problem
from tests.alignment.samples import all_samples, chosen_samples


def with_target(problem: Problem, y: int) -> Problem:
    return Problem(**{**vars(problem), "targets": torch.full_like(problem.targets, y)})


def score(predictor, problem: Problem, **options):
    return predictor.log_likelihood(problem.prior(), problem.likelihood(), **options)


@pytest.mark.parametrize("seed", range(3))
def test_exact_soft_and_kmax_scores(seed: int) -> None:
    problem = problems.make(seed, lengths=(5, 2, 1), steps=2)
    plain = problem.plain()
    exact = plain.each(lambda o: oracles.marginal(o.prior, o.log_f))
    torch.testing.assert_close(score(Exact(), problem).tolist(), exact, **EXACT)
    torch.testing.assert_close(score(SoftContext(), problem).tolist(), plain.each(lambda o: o.soft), **EXACT)
    for k in (1, 2, 3, 4):
        expected = plain.each(lambda o, k=k: oracles.kmax(o.prior, o.log_f, k))
        torch.testing.assert_close(score(KMax(k), problem).tolist(), expected, **EXACT)


@pytest.mark.parametrize("k", [5, 6, 100])
def test_kmax_of_all_positions_is_exact(k: int) -> None:
    problem = problems.make(3, lengths=(5, 2), steps=2)
    torch.testing.assert_close(score(KMax(k), problem), score(Exact(), problem), **EXACT)
    torch.testing.assert_close(
        KMax(k).log_probs(problem.prior(), problem.likelihood()),
        Exact().log_probs(problem.prior(), problem.likelihood()),
        **EXACT,
    )


@pytest.mark.parametrize("predictor", [Exact(), KMax(2), SoftContext()], ids=repr)
def test_log_probs_are_the_scores_of_every_output_value(predictor) -> None:
    problem = problems.make(4, lengths=(4, 2), steps=2)
    for max_elements in (2**24, 3, 7):
        found = predictor.log_probs(problem.prior(), problem.likelihood(max_elements=max_elements))
        assert found.shape == (2, 2, 3)
        torch.testing.assert_close(found.exp().sum(dim=-1), torch.ones(2, 2, dtype=torch.float64))
        for y in range(3):
            torch.testing.assert_close(found[..., y], score(predictor, with_target(problem, y)), **EXACT)


def test_predicting_needs_no_targets() -> None:
    problem = problems.make(0)
    blind = problem.likelihood()
    blind.targets = None
    for predictor in (Exact(), KMax(2), SoftContext(), Sampled(3)):
        assert torch.isfinite(predictor.log_probs(problem.prior(), blind)).all()


def test_any_prediction_fits_a_sparse_prior() -> None:
    problem = problems.make(1, lengths=(5, 3))
    prior, f = problem.prior("sparsemax"), problem.likelihood()
    assert (prior.support.sum(dim=-1) < problem.mask.sum(dim=-1)[:, None]).any()
    exact = Marginal()(AlignmentProblem(prior, f)).value
    torch.testing.assert_close(Exact().log_likelihood(prior, f).detach(), exact)
    torch.testing.assert_close(KMax(5).log_likelihood(prior, f).detach(), exact)
    torch.testing.assert_close(KMax(5).log_probs(prior, f), Exact().log_probs(prior, f))


@pytest.mark.parametrize(("steps", "n"), [(2, 2), (1, 3)])
def test_sampled_prediction_is_unbiased_over_all_samples(steps: int, n: int) -> None:
    problem = problems.make(2, lengths=(3,), steps=steps)
    output = [problem.plain().output(0, t) for t in range(steps)]
    mean, every = torch.zeros(steps, dtype=torch.float64), torch.zeros(steps, 3, dtype=torch.float64)
    with chosen_samples() as chosen:
        for positions, chance in all_samples(problem.prior(), n):
            chosen.positions = positions
            found = score(Sampled(n), problem).detach()
            by_hand = [
                math.log(sum(math.exp(output[t].log_f[i]) for i in positions[:, 0, t].tolist()) / n)
                for t in range(steps)
            ]
            assert found[0].tolist() == pytest.approx(by_hand)
            mean += chance * found[0].exp()
            log_probs = Sampled(n).log_probs(problem.prior(), problem.likelihood()).detach()
            every += chance * log_probs[0].exp()
            torch.testing.assert_close(log_probs.gather(-1, problem.targets[..., None])[..., 0], found)
        assert {count for _, count in chosen.asked} == {n}
    torch.testing.assert_close(mean, score(Exact(), problem)[0].detach().exp())
    exact = Exact().log_probs(problem.prior(), problem.likelihood())
    torch.testing.assert_close(every, exact[0].detach().exp())


def test_sampled_prediction_of_a_relaxed_prior_averages_probabilities() -> None:
    problem = problems.make(2)
    prior = Dirichlet.from_scores(problem.prior_scores, problem.mask)
    found = Sampled(4).log_likelihood(prior, problem.likelihood(), generator=torch.Generator().manual_seed(0))
    z = prior.rsample(4, torch.Generator().manual_seed(0))
    expected = problem.likelihood().mixture(z).exp().mean(dim=0).log()
    torch.testing.assert_close(found, expected)
    log_probs = Sampled(4).log_probs(prior, problem.likelihood(), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(log_probs.gather(-1, problem.targets[..., None])[..., 0], expected)
    torch.testing.assert_close(
        SoftContext().log_likelihood(prior, problem.likelihood()), problem.likelihood().mixture(prior.mean())
    )


@pytest.mark.parametrize("method", ["log_likelihood", "log_probs"])
@pytest.mark.parametrize("predictor", [Exact(), KMax(2), Sampled(3), SoftContext()], ids=repr)
@pytest.mark.parametrize("positions", [2, 4])
def test_a_prior_over_another_memory_is_refused(predictor, method: str, positions: int) -> None:
    """A position beyond the memory would read the next example's, and nobody would notice."""
    problem = problems.make(0, lengths=(3, 3), steps=2)
    prior = Categorical.from_scores(torch.zeros(2, 2, positions, dtype=torch.float64))
    with pytest.raises(ShapeError, match=rf"received \[2, 2, {positions}\]"):
        getattr(predictor, method)(prior, problem.likelihood())
