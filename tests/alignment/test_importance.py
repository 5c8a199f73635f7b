"""RWS and VIMCO: every tuple of samples against gradients derived by hand, and their expectation."""

import pytest
import torch
from torch import Tensor

from latentalign.alignment import AlignmentProblem, ReweightedWakeSleep, TableLikelihood, Vimco
from tests import oracles
from tests.alignment import problems
from tests.alignment.problems import EXACT, Problem
from tests.alignment.samples import all_samples, chosen_samples

SEEDS = range(3)


def table_problem(seed: int, size: int = 3) -> tuple[Problem, Tensor]:
    """One output with a free table of log f, so that its gradient can be written down by hand."""
    problem = problems.single(seed, size=size + 1)
    problem.mask[0, size] = False
    table = problem.likelihood().everywhere(torch.ones(1, 1, size + 1, dtype=torch.bool))
    return problem, table.detach().requires_grad_()


def slopes(problem: Problem, table: Tensor, objective: Tensor) -> list[list[float]]:
    inputs = (problem.prior_scores, problem.posterior_scores, table)
    found = torch.autograd.grad(objective, inputs, allow_unused=True)
    return [
        (torch.zeros_like(x) if g is None else g).flatten().tolist()
        for x, g in zip(inputs, found, strict=True)
    ]


def as_lists(direction: oracles.Direction) -> list[list[float]]:
    return [direction.prior_scores, direction.posterior_scores, direction.log_f]


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("objective", "by_hand"),
    [(ReweightedWakeSleep, oracles.rws_direction), (Vimco, oracles.vimco_direction)],
)
def test_each_sample_tuple_moves_as_derived_by_hand(objective, by_hand, seed: int, k: int) -> None:
    problem, table = table_problem(seed)
    plain = problem.plain().output(0, 0)
    logs = table[0, 0].tolist()
    total, mean = oracles.Direction(4), 0.0
    with chosen_samples() as chosen:
        for positions, chance in all_samples(problem.posterior(), k):
            chosen.positions = positions
            bound = objective(samples=k)(
                AlignmentProblem(problem.prior(), TableLikelihood(table), posterior=problem.posterior())
            )
            sample = positions.flatten().tolist()
            expected = by_hand(plain.posterior, plain.prior, logs, sample)
            found = slopes(problem, table, bound.surrogate.sum())
            torch.testing.assert_close(found, as_lists(expected), **EXACT)
            value = oracles.importance_bound(plain.posterior, plain.prior, logs, sample)
            assert bound.value.item() == pytest.approx(value, rel=1e-12)
            assert bound.surrogate.item() == pytest.approx(value, rel=1e-12)
            mean += chance * bound.value.item()
            moved = oracles.Direction(4)
            moved.prior_scores, moved.posterior_scores, moved.log_f = found
            total.add(moved, chance)
        asked, count = chosen.asked[0]
        assert count == k
        assert torch.equal(asked.probs, problem.posterior().probs)  # q is sampled, not p
    assert oracles.elbo(plain.posterior, plain.prior, logs) <= mean
    assert mean <= oracles.marginal(plain.prior, logs)
    if objective is Vimco:  # unbiased for the bound of K samples
        exact = oracles.importance_direction(plain.posterior, plain.prior, logs, k)
        torch.testing.assert_close(as_lists(total), as_lists(exact), **EXACT)


def test_rws_with_one_sample_has_weight_one() -> None:
    problem, table = table_problem(0)
    plain = problem.plain().output(0, 0)
    with chosen_samples() as chosen:
        chosen.positions = torch.tensor([[[1]]])
        bound = ReweightedWakeSleep(samples=1)(
            AlignmentProblem(problem.prior(), TableLikelihood(table), posterior=problem.posterior())
        )
    found = slopes(problem, table, bound.surrogate.sum())
    torch.testing.assert_close(
        found,
        [
            oracles.score_gradient(plain.prior, 1),
            oracles.score_gradient(plain.posterior, 1),
            [0.0, 1.0, 0.0, 0.0],
        ],
        **EXACT,
    )
