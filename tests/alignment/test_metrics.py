"""Diagnostics: tightness, exact posterior, Proposition 1 and alignment error rate."""

import math
import random

import pytest
import torch

from latentalign.alignment import (
    AlignmentProblem,
    Categorical,
    ContextLikelihood,
    Elbo,
    Marginal,
    Soft,
    alignment_error_rate,
    exact_posterior,
    log_marginal,
    proposition1,
    tightness,
)
from tests import oracles
from tests.alignment import problems
from tests.alignment.problems import EXACT, Problem, evaluate


@pytest.mark.parametrize("seed", range(3))
def test_log_marginal_and_exact_posterior(seed: int) -> None:
    problem = problems.make(seed, lengths=(4, 2), steps=2)
    plain, prior, f = problem.plain(), problem.prior(), problem.likelihood()
    found = log_marginal(prior, f)
    torch.testing.assert_close(
        found.tolist(), plain.each(lambda o: oracles.marginal(o.prior, o.log_f)), **EXACT
    )
    posterior = exact_posterior(prior, f)
    expected = [
        [oracles.responsibilities(o.prior, o.log_f) for o in (plain.output(b, t) for t in range(2))]
        for b in range(2)
    ]
    torch.testing.assert_close(posterior.probs.tolist(), expected, **EXACT)
    assert not found.requires_grad
    assert not posterior.probs.requires_grad


def test_tightness_is_the_divergence_from_the_exact_posterior() -> None:
    problem = problems.make(1, lengths=(4, 2))
    prior, f = problem.prior(), problem.likelihood()
    loose = tightness(evaluate(problem, Elbo()), prior, f)
    torch.testing.assert_close(loose, problem.posterior().kl(exact_posterior(prior, f)).detach(), **EXACT)
    assert (loose > 0).all()
    tight = Elbo()(AlignmentProblem(prior, f, posterior=exact_posterior(prior, f)))
    torch.testing.assert_close(tightness(tight, prior, f), torch.zeros_like(loose), **EXACT)


# ------------------------------------------------------------------------------------------ Proposition 1


def second_derivatives(problem: Problem, z: list[float]) -> list[list[float]]:
    """Hessian of f(x, z)_y: complex steps for the gradient, a central difference of it for the rest."""
    plain = problem.plain()
    arguments = plain.values[0], plain.queries[0][0], plain.weight, plain.targets[0][0]

    def slope(point: list[float]) -> list[float]:
        return oracles.gradient(lambda x: oracles.exp(oracles.log_likelihood(*arguments, x)), point)

    step, rows = 1e-5, []
    for i in range(len(z)):
        up, down = ([x + sign * step * (j == i) for j, x in enumerate(z)] for sign in (1, -1))
        rows.append([(a - b) / (2 * step) for a, b in zip(slope(up), slope(down), strict=True)])
    return rows


def spectral_norm(hessian: list[list[float]]) -> float:
    """Of a symmetric 2 × 2 matrix: the larger absolute eigenvalue."""
    (a, b), (_, d) = hessian
    middle, radius = (a + d) / 2, math.hypot((a - d) / 2, b)
    return max(abs(middle + radius), abs(middle - radius))


@pytest.mark.parametrize("seed", range(4))
def test_curvature_over_a_memory_of_two_is_that_of_the_whole_simplex(seed: int) -> None:
    problem = problems.single(seed, size=2)
    gap = proposition1(problem.prior(), problem.likelihood(), grid=65)
    brute = max(spectral_norm(second_derivatives(problem, [n / 100, 1 - n / 100])) for n in range(101))
    assert gap.curvature.item() == pytest.approx(brute, rel=0.02)
    assert torch.equal(gap.bound, gap.curvature)
    mean = [float(p) for p in problem.plain().output(0, 0).prior]
    assert gap.sharp_bound.item() == pytest.approx(
        0.5 * gap.curvature.item() * (1 - sum(p * p for p in mean))
    )


@pytest.mark.parametrize("seed", range(8))
def test_the_soft_gap_is_within_its_curvature_bound(seed: int) -> None:
    problem = problems.make(seed, lengths=(4, 3), steps=2)
    gap = proposition1(problem.prior(), problem.likelihood())
    expected = problem.plain().each(
        lambda o: abs(oracles.exp(oracles.marginal(o.prior, o.log_f)) - oracles.exp(o.soft))
    )
    torch.testing.assert_close(gap.gap.tolist(), expected, **EXACT)
    assert (gap.gap <= gap.sharp_bound * 1.001).all()
    assert (gap.sharp_bound <= gap.bound).all()
    assert gap.gap.max() > 1e-3


def test_padding_does_not_enter_the_curvature() -> None:
    problem = problems.make(2, lengths=(3,), steps=2)
    short = proposition1(problem.prior(), problem.likelihood(), grid=5)
    padded = Problem(
        **{
            **vars(problem),
            "prior_scores": torch.nn.functional.pad(problem.prior_scores, (0, 2), value=5.0),
            "values": torch.nn.functional.pad(problem.values, (0, 0, 0, 2), value=9.0),
            "mask": torch.nn.functional.pad(problem.mask, (0, 2)),
        }
    )
    long = proposition1(padded.prior(), padded.likelihood(), grid=5)
    for name in ("gap", "curvature", "sharp_bound"):
        torch.testing.assert_close(getattr(long, name), getattr(short, name))


def test_a_linear_likelihood_has_no_curvature_and_no_gap() -> None:
    problem = problems.make(0, lengths=(3, 2))
    tables = torch.rand(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    tables = tables / tables.sum(dim=-1, keepdim=True)
    f = ContextLikelihood(lambda context, _: context.log(), tables, problem.queries, problem.targets)
    gap = proposition1(problem.prior(), f, grid=3)
    torch.testing.assert_close(gap.gap, torch.zeros_like(gap.gap))
    sure = Categorical.from_scores(1e4 * problem.prior_scores, problem.mask)
    nowhere = proposition1(sure, problem.likelihood(), grid=3)
    torch.testing.assert_close(nowhere.gap, torch.zeros_like(gap.gap))
    torch.testing.assert_close(
        Marginal()(AlignmentProblem(sure, problem.likelihood())).value,
        Soft()(AlignmentProblem(sure, problem.likelihood())).value,
    )


# ------------------------------------------------------------------------------------------ alignment error


def test_alignment_error_rate_against_plain_counting() -> None:
    dice = random.Random(0)
    cells = [(i, j) for i in range(4) for j in range(4)]
    predicted, sure, possible = (
        [set(dice.sample(cells, dice.randint(1, 8))) for _ in range(5)] for _ in "123"
    )
    found = alignment_error_rate(predicted, sure, possible)
    tagged = [
        {(n, *link) for n, links in enumerate(group) for link in links}
        for group in (predicted, sure, possible)
    ]
    assert found.aer == pytest.approx(oracles.alignment_error_rate(*tagged))
    hits = sum(len(a & (s | p)) for a, s, p in zip(predicted, sure, possible, strict=True))
    assert found.precision == pytest.approx(hits / sum(map(len, predicted)))
    both = sum(len(a & s) for a, s in zip(predicted, sure, strict=True))
    assert found.recall == pytest.approx(both / sum(map(len, sure)))
    assert (found.predicted, found.sure) == (sum(map(len, predicted)), sum(map(len, sure)))
    assert found.possible == sum(len(s | p) for s, p in zip(sure, possible, strict=True))


@pytest.mark.parametrize(
    ("predicted", "sure", "possible", "aer"),
    [
        ({(0, 0)}, {(0, 0)}, set(), 0.0),
        ({(0, 1)}, {(0, 0)}, set(), 1.0),
        ({(0, 0), (1, 1)}, {(0, 0)}, {(1, 1)}, 0.0),
        (set(), {(0, 0)}, set(), 1.0),
        (set(), set(), set(), 0.0),
    ],
)
def test_alignment_error_rate_at_the_edges(predicted: set, sure: set, possible: set, aer: float) -> None:
    assert alignment_error_rate([predicted], [sure], [possible]).aer == pytest.approx(aer)


def test_without_possible_links_only_sure_ones_count() -> None:
    assert alignment_error_rate([{(0, 0), (1, 1)}], [{(0, 0)}]).aer == pytest.approx(1 - 2 / 3)
