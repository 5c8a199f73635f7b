"""How steps hang together: sums over a sequence by plain loops, with padding that would spoil them if it counted."""

import math

import pytest
import torch

from latentalign.alignment import AlignmentProblem, Categorical, TableLikelihood
from latentalign.alignment.latents.dependence import SequentialSteps

STEPS = torch.tensor([[True, True, True], [True, True, False], [True, False, False]])
VALUES = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)  # [K,B,T]
SEQUENCE = SequentialSteps(STEPS)


def real(k: int, b: int) -> list[float]:
    return VALUES[k, b][STEPS[b]].tolist()


@pytest.mark.parametrize("b", range(3))
def test_rewards_prefixes_and_increments_leave_padding_out(b: int) -> None:
    for k in range(2):
        values = real(k, b)
        count = len(values)
        togo = SEQUENCE.rewards_to_go(VALUES)[k, b].tolist()
        assert togo == pytest.approx([sum(values[t:]) for t in range(3)])
        prefixes = SEQUENCE.prefixes(VALUES)[k, b].tolist()
        assert prefixes == pytest.approx([sum(values[: t + 1]) for t in range(3)])
        increments = SEQUENCE.increments(VALUES)[k, b].tolist()
        expected = [values[0], *(values[t] - values[t - 1] for t in range(1, count)), *[0.0] * (3 - count)]
        assert increments == pytest.approx(expected)


def test_samples_weigh_by_what_came_before() -> None:
    found = SEQUENCE.weights_before(lambda: VALUES, VALUES.shape)
    for b in range(3):
        for t in range(3):
            before = [math.exp(sum(real(k, b)[:t])) for k in range(2)]
            assert found[:, b, t].tolist() == pytest.approx([one / sum(before) for one in before])


def test_the_steps_of_a_problem_end_with_the_last_that_counts() -> None:
    weights = torch.tensor([[1.0, 1.0, 0.0], [0.0, 2.0, 0.0], [1.0, 0.0, 0.0]])
    table = torch.zeros(3, 3, 2)
    problem = AlignmentProblem(Categorical.from_scores(table), TableLikelihood(table), weights)
    assert problem.steps.tolist() == [[True, True, False], [True, True, False], [True, False, False]]
