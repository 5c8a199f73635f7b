"""Outputs that some positions, or all of them, cannot give (log f = −inf): numbers stay finite where they can."""

import math

import pytest
import torch
from torch import Tensor

from latentalign.alignment import (
    AlignmentProblem,
    Categorical,
    Exact,
    KMax,
    Marginal,
    ReweightedWakeSleep,
    TableLikelihood,
    Vimco,
    Wake,
    exact_posterior,
)
from latentalign.alignment.learning.importance import FAR_BELOW
from tests import oracles
from tests.alignment.samples import chosen_samples

IMPOSSIBLE = -math.inf
LOGS = [-1.0, IMPOSSIBLE, -2.0]
OBJECTIVES = {
    "marginal": Marginal(),
    "pruned": Marginal(prune=0.01),
    "wake": Wake(),
    "wake-pruned": Wake(prune=0.01),
    "rws": ReweightedWakeSleep(samples=3),
    "vimco": Vimco(samples=3),
}


class Setting:
    """One output over three positions, with a free table of log f."""

    def __init__(self, logs: list[float]) -> None:
        generator = torch.Generator().manual_seed(0)
        self.logs = torch.tensor([[logs]], dtype=torch.float64, requires_grad=True)
        self.prior_scores, self.posterior_scores = (
            torch.randn(1, 1, 3, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(2)
        )
        self.p, self.q = (Categorical.from_scores(x) for x in (self.prior_scores, self.posterior_scores))

    def bound(self, objective):
        posterior = self.q if objective.needs_posterior else None
        return objective(AlignmentProblem(self.p, TableLikelihood(self.logs), posterior=posterior))

    def slopes(self, value: Tensor) -> list[list[float]]:
        leaves = (self.prior_scores, self.posterior_scores, self.logs)
        found = torch.autograd.grad(value.sum(), leaves, materialize_grads=True)
        return [slope.flatten().tolist() for slope in found]


@pytest.mark.parametrize("positions", [[0, 1, 2], [1, 1, 0], [1, 2, 1]], ids=str)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_impossible_position_leaves_value_and_gradient_finite(name: str, positions: list[int]) -> None:
    setting = Setting(LOGS)
    with chosen_samples() as chosen:
        chosen.positions = torch.tensor(positions).view(3, 1, 1)
        bound = setting.bound(OBJECTIVES[name])
    for part in (bound.value, bound.surrogate, bound.log_likelihood, *bound.diagnostics.values()):
        assert torch.isfinite(part).all()
    slopes = setting.slopes(bound.surrogate)
    assert all(math.isfinite(slope) for part in slopes for slope in part)
    assert slopes[2][1] == 0


def test_rws_takes_the_possible_samples_alone() -> None:
    setting = Setting(LOGS)
    p, q = setting.p.probs[0, 0].tolist(), setting.q.probs[0, 0].tolist()
    with chosen_samples() as chosen:
        chosen.positions = torch.tensor([1, 2, 1]).view(3, 1, 1)
        bound = setting.bound(ReweightedWakeSleep(samples=3))
    assert bound.value.item() == pytest.approx(math.log(p[2] * math.exp(-2) / q[2] / 3))
    assert bound.log_likelihood.item() == pytest.approx(-2)
    expected = [oracles.score_gradient(p, 2), oracles.score_gradient(q, 2), [0.0, 0.0, 1.0]]
    torch.testing.assert_close(setting.slopes(bound.surrogate), expected)


def test_vimco_pushes_towards_the_possible_sample() -> None:
    setting = Setting(LOGS)
    p, q = setting.p.probs[0, 0].tolist(), setting.q.probs[0, 0].tolist()
    with chosen_samples() as chosen:
        chosen.positions = torch.tensor([1, 2]).view(2, 1, 1)
        bound = setting.bound(Vimco(samples=2))
    # the impossible sample's weight is e^−20 of the other's; without sample k, the other's weight stands twice
    total = math.log1p(math.exp(-FAR_BELOW))
    signal = {1: total - math.log(2), 2: total - (math.log(2) - FAR_BELOW)}
    # d/dφ: the weights' own −∇log q (only the possible one has weight) and the signals
    q_slopes = [
        -a + signal[1] * b + signal[2] * a
        for a, b in zip(oracles.score_gradient(q, 2), oracles.score_gradient(q, 1), strict=True)
    ]
    found = setting.slopes(bound.surrogate)
    torch.testing.assert_close(found, [oracles.score_gradient(p, 2), q_slopes, [0.0, 0.0, 1.0]])
    assert signal[2] > 0 > signal[1]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_output_that_nothing_can_give_has_value_minus_infinity_and_no_gradient(name: str) -> None:
    setting = Setting([IMPOSSIBLE] * 3)
    bound = setting.bound(OBJECTIVES[name])
    assert bound.value.item() == bound.surrogate.item() == bound.log_likelihood.item() == IMPOSSIBLE
    prior, posterior, logs = setting.slopes(bound.surrogate)
    assert prior == logs == [0.0] * 3
    if not isinstance(OBJECTIVES[name], Wake):  # the wake phase of q still learns the prior
        assert posterior == pytest.approx([0.0] * 3)
    assert all(not part.isnan().any() for part in bound.diagnostics.values())


@pytest.mark.parametrize("predictor", [Exact(), KMax(2)], ids=repr)
def test_predictions_of_an_impossible_output(predictor) -> None:
    setting = Setting([IMPOSSIBLE] * 3)
    score = predictor.log_likelihood(setting.p, TableLikelihood(setting.logs))
    assert score.item() == IMPOSSIBLE
    assert setting.slopes(score) == [[0.0] * 3] * 3


def test_the_posterior_of_an_impossible_output_is_the_prior() -> None:
    setting = Setting([IMPOSSIBLE] * 3)
    found = exact_posterior(setting.p, TableLikelihood(setting.logs))
    torch.testing.assert_close(found.probs, setting.p.probs)
