"""The pruned marginal of a chain against the dense one."""

import pytest
import torch
from torch import Tensor

from latentalign.alignment import (
    AlignmentProblem,
    Chain,
    ContextLikelihood,
    Marginal,
    MatrixTransitions,
    MonotoneTransitions,
    TableLikelihood,
    Wake,
)
from latentalign.alignment.chains.pruning import _first
from tests.alignment import chains
from tests.alignment.chains import DOUBLE, EXACT, ChainProblem


def sharp(seed: int, sizes: tuple[tuple[int, int], ...] = ((5, 8), (4, 5))) -> ChainProblem:
    """Two padded examples with probabilities as f."""
    problem = chains.make(seed, sizes=sizes, spread=2.0)
    problem.log_f = problem.log_f.detach().log_softmax(dim=-1).requires_grad_()
    return problem


@pytest.mark.parametrize("prune", [1e-12, 0.003, 0.03, 0.2])
@pytest.mark.parametrize("seed", range(4))
def test_the_value_is_a_lower_bound_and_the_gradient_near(seed: int, prune: float) -> None:
    problem = sharp(seed)
    dense, pruned = problem.bound(Marginal()), problem.bound(Marginal(prune=prune))
    gap = (dense.value - pruned.value).sum(dim=-1)
    assert (gap >= -1e-12).all()
    torch.testing.assert_close(pruned.surrogate, pruned.value)
    dropped = pruned.diagnostics["dropped_mass"]
    assert ((dropped >= 0) & (dropped <= 1)).all()
    exact, found = (problem.gradients(bound.surrogate.sum()) for bound in (dense, pruned))
    for name in ("scores", "jumps", "log_f"):
        if prune == 1e-12:
            torch.testing.assert_close(found[name], exact[name], **EXACT)
        else:
            error = (found[name] - exact[name]).norm() / exact[name].norm()
            assert error < 3 * prune
    if prune == 0.2:
        assert gap.max() > 1e-3
        assert dropped.max() > 0.01


def test_few_pairs_are_evaluated_once_the_chain_is_sharp() -> None:
    problem = chains.make(0, sizes=((8, 20),))
    values, weight = torch.randn(1, 20, 4, dtype=DOUBLE), 4 * torch.randn(30, 4, dtype=DOUBLE)
    asked = []

    def head(context: Tensor, query: Tensor) -> Tensor:
        asked.append((context.shape[0], torch.is_grad_enabled()))
        return torch.tanh(context + query) @ weight.T

    f = ContextLikelihood(
        head, values, torch.zeros(1, 8, 4, dtype=DOUBLE), torch.zeros(1, 8).long(), width=30
    )
    prior = Chain.from_scores(20 * problem.scores, transitions=MatrixTransitions(problem.jumps))
    Marginal(prune=0.01)(AlignmentProblem(prior, f))
    assert sum(count for count, _ in asked) < 0.5 * 8 * 20
    assert sum(count for count, graph in asked if graph) <= 3 * 8


def test_a_monotone_chain_keeps_a_path() -> None:
    problem = sharp(1)
    moves = MonotoneTransitions(8)
    prior = Chain.from_scores(problem.scores, problem.mask, transitions=moves, steps=problem.steps)
    dense, pruned = (
        Marginal(prune=prune)(AlignmentProblem(prior, problem.likelihood(), problem.steps)).value
        for prune in (0.0, 0.3)
    )
    assert torch.isfinite(pruned).all()
    assert (pruned.sum(dim=-1) <= dense.sum(dim=-1) + 1e-12).all()


def test_at_first_a_path_is_evaluated_besides_the_likeliest_positions() -> None:
    scores = torch.tensor([[[2.0, 0.0, 0.0], [0.0, 2.0, 0.0]]])
    chain = Chain.from_scores(scores, transitions=MonotoneTransitions(3))
    share = torch.tensor([[[0.1, 0.2, 0.7], [0.7, 0.2, 0.1]]])  # the likeliest positions are no monotone path
    found = _first(chain, share, torch.ones_like(chain.support))
    assert found.tolist() == [[[True, False, True], [True, True, False]]]


@pytest.mark.parametrize("sizes", [((5, 8), (4, 5)), ((3, 4), (2, 4))])
def test_nothing_is_evaluated_beyond_the_end(sizes: tuple[tuple[int, int], ...]) -> None:
    problem = sharp(2, sizes)
    prior = problem.prior()
    evaluated = prior.marginalise_pruned(problem.likelihood(), 0.01).evaluated
    assert evaluated is not None
    assert not (evaluated & ~prior.support).any()
    assert not evaluated[~problem.steps].any()


def test_a_density_is_not_pruned() -> None:
    problem = chains.make(0)
    assert not TableLikelihood(problem.log_f).is_probability
    dense, pruned = problem.bound(Marginal()), problem.bound(Marginal(prune=0.1))
    assert torch.equal(dense.value, pruned.value)


def test_wake_fits_q_to_nearly_the_smoothed_posterior() -> None:
    problem = sharp(3)
    exact, found = (
        problem.gradients(problem.bound(Wake(prune=prune)).surrogate.sum())["posterior_scores"]
        for prune in (0.0, 0.01)
    )
    assert (exact - found).norm() < 0.02 * exact.norm()
    assert (exact - found).norm() > 0
