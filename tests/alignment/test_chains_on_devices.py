"""Chains on another device and under autocast: every objective, estimator and predictor that they take."""

import pytest
import torch
from torch import Tensor, nn

from latentalign.alignment import (
    Exact,
    KMax,
    LatentAttention,
    MonotoneTransitions,
    Objective,
    Predictor,
    Sampled,
    SoftContext,
)
from tests.alignment.choices import EVERY, objective_of
from tests.devices import at_home, elsewhere

# relaxed samples have no meaning for a chain
OBJECTIVES = [name for name in EVERY if name != "gumbel"]
TRANSITIONS = ["jump", "monotone"]


def run(
    device: torch.device | str,
    transitions: str,
    *,
    objective: Objective,
    predictor: Predictor,
    dtype: torch.dtype = torch.float64,
) -> list[Tensor]:
    """Loss, its gradients, and predictions of a layer whose alignment is a chain."""
    torch.manual_seed(0)
    attend = LatentAttention(4, 4, objective=objective, inference=predictor, transitions=transitions)
    attend, output = attend.to(device, dtype), nn.Linear(4, 6).to(device, dtype)
    queries, memory = (torch.randn(2, count, 4).to(device, dtype) for count in (3, 5))
    posterior_scores = torch.randn(2, 3, 5).to(device, dtype).requires_grad_()
    targets = torch.tensor([[0, 5, 1], [1, 2, -100]]).to(device)
    mask = (torch.arange(5) < torch.tensor([[5], [3]])).to(device)

    def head(context: Tensor, query: Tensor) -> Tensor:
        return output(torch.tanh(context + query))

    def call():
        generator = torch.Generator(device=device).manual_seed(0)
        scores = posterior_scores if objective.needs_posterior else None
        return attend(
            queries,
            memory,
            head,
            mask=mask,
            targets=targets,
            posterior_scores=scores,
            generator=generator,
        )

    trained = call()
    leaves = [*attend.parameters(), *output.parameters(), posterior_scores]
    slopes = torch.autograd.grad(trained.loss, leaves, materialize_grads=True)
    attend.eval()
    evaluated = call()
    # the last output of the second example does not count, and nothing is said of it
    log_probs = evaluated.log_probs[:, :2]
    return [trained.loss, *slopes, evaluated.loss, log_probs, evaluated.attention[:, :2]]


@pytest.mark.parametrize("transitions", TRANSITIONS)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_objectives_on_a_chain_elsewhere(name: str, transitions: str) -> None:
    def all_of(device: torch.device | str) -> list[Tensor]:
        objective = objective_of(name)
        return run(device, transitions, objective=objective, predictor=Exact())

    expected = all_of("cpu")
    with elsewhere() as device:
        found = all_of(device)
        assert {part.device for part in found} == {device}
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(at_home(a), b.detach())


@pytest.mark.parametrize("transitions", TRANSITIONS)
@pytest.mark.parametrize("predictor", [KMax(2), Sampled(3), SoftContext()], ids=repr)
def test_predictions_of_a_chain_elsewhere(predictor: Predictor, transitions: str) -> None:
    expected = run("cpu", transitions, objective=objective_of("marginal"), predictor=predictor)
    with elsewhere() as device:
        found = run(device, transitions, objective=objective_of("marginal"), predictor=predictor)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(at_home(a), b.detach())


@pytest.mark.parametrize("transitions", TRANSITIONS)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_objectives_on_a_chain_under_autocast(name: str, transitions: str) -> None:
    parts = {"objective": objective_of(name), "predictor": Exact(), "dtype": torch.float32}
    with torch.autocast("cpu", torch.bfloat16):
        found = run("cpu", transitions, **parts)
    assert {part.dtype for part in found} == {torch.float32}
    assert all(torch.isfinite(part).all() for part in found)
    if name in ("marginal", "hard", "variational", "soft"):
        expected = run("cpu", transitions, **parts)
        torch.testing.assert_close(found[0], expected[0], rtol=0.05, atol=0.05)


@pytest.mark.parametrize("transitions", TRANSITIONS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_chain_in_half_precision(dtype: torch.dtype, transitions: str) -> None:
    parts = {"objective": objective_of("marginal"), "predictor": Exact()}
    found = run("cpu", transitions, dtype=dtype, **parts)
    assert {part.dtype for part in found} == {dtype}
    expected = run("cpu", transitions, dtype=torch.float32, **parts)
    torch.testing.assert_close(found[0].float(), expected[0], rtol=0.05, atol=0.05)


@pytest.mark.parametrize("stay", [True, False])
def test_sums_of_monotone_transitions_have_second_derivatives(stay: bool) -> None:
    transitions = MonotoneTransitions(4, stay=stay)
    scores = torch.randn(
        2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    ).requires_grad_()
    for sums in (transitions.arrive, transitions.leave):

        def reachable(v: Tensor, sums=sums) -> Tensor:
            return sums(v).clamp_min(-100.0)  # log 0 where nothing can be

        assert torch.autograd.gradcheck(reachable, scores)
        assert torch.autograd.gradgradcheck(reachable, scores)
        # where some sums have a gradient, the others' is 0
        (slope,) = torch.autograd.grad(sums(scores)[:, 1:3].sum(), scores, create_graph=True)
        (second,) = torch.autograd.grad(slope.square().sum(), scores)
        assert torch.isfinite(second).all()
        assert second.abs().max() > 0
