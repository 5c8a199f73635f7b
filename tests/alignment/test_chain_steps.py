"""Chains step by step: samples, the filter of a search, moves that are not allowed, prefix sums."""

import itertools
import math

import pytest
import torch

from latentalign.alignment import Chain, ConfigError, MatrixTransitions, MonotoneTransitions
from latentalign.alignment.chains.filtering import predict, update
from latentalign.alignment.chains.monotone import _prefix_sums
from latentalign.alignment.chains.paths import with_a_future
from tests import chain_oracles
from tests.alignment import chains
from tests.alignment.chains import DOUBLE


def test_samples_follow_the_law_of_the_chain() -> None:
    """Shares of all paths among 20,000 samples; 5 standard errors each, so one seed in 100,000 would fail."""
    problem = chains.make(1)
    drawn = problem.prior().sample(20_000, torch.Generator().manual_seed(0))
    again = problem.prior().sample(20_000, torch.Generator().manual_seed(0))
    assert torch.equal(drawn, again)
    for b, plain in enumerate(problem.plain()):
        count, _ = problem.sizes(b)
        paths, counts = drawn[:, b, :count].unique(dim=0, return_counts=True)
        law = chain_oracles.law(plain.prior)
        assert {tuple(path) for path in paths.tolist()} <= set(law)
        for path, number in zip(paths.tolist(), counts.tolist(), strict=True):
            p = law[tuple(path)]
            assert abs(number / 20_000 - p) < 5 * math.sqrt(p * (1 - p) / 20_000)


@pytest.mark.parametrize("transitions", ["jumps", "monotone"])
def test_the_filter_step_by_step_is_the_filter(transitions: str) -> None:
    problem = chains.make(0, sizes=((3, 3), (3, 2)))
    moves = MatrixTransitions(problem.jumps) if transitions == "jumps" else MonotoneTransitions(3)
    chain = Chain.from_scores(problem.scores, problem.mask, transitions=moves)
    whole = chain.predictive(problem.likelihood()).probs
    evidence = chain.marginalise(problem.log_f).value
    belief = None
    for t in range(3):
        # two hypotheses at once, of which the second is the first again
        twice = problem.scores[:, None, t].expand(-1, 2, -1)
        log_pi = predict(belief, twice, moves, mask=problem.mask[:, None])
        torch.testing.assert_close(log_pi[:, 1].exp(), whole[:, t])
        now = (log_pi + problem.log_f[:, None, t]).logsumexp(dim=-1)
        torch.testing.assert_close(now, evidence[:, t, None].expand(-1, 2))
        belief = update(log_pi, problem.log_f[:, None, t])
        torch.testing.assert_close(belief.exp().sum(dim=-1), torch.ones(2, 2, dtype=DOUBLE))


def test_the_gradient_of_a_single_step_may_be_negative() -> None:
    problem = chains.make(0)
    scores, log_f = problem.scores[:, :1], problem.log_f[:, :1]
    value = Chain.from_scores(scores, problem.mask, transitions=MatrixTransitions(problem.jumps)).marginalise(
        log_f
    )
    up = problem.gradients(value.surrogate.sum())
    down = problem.gradients(-value.surrogate.sum())
    assert up["scores"].abs().max() > 0.01
    for name in ("scores", "log_f"):
        torch.testing.assert_close(down[name], -up[name])


@pytest.mark.parametrize("weight", [-1.0, 0.0, math.nan])
def test_the_gradient_of_a_loss_is_that_of_its_negative(weight: float) -> None:
    problem = chains.make(0)
    value = problem.prior().marginalise(problem.log_f).surrogate.sum()
    up, found = problem.gradients(value), problem.gradients(weight * value)
    assert up["jumps"].abs().max() > 0.01
    for name in ("scores", "jumps", "log_f"):
        if math.isnan(weight):
            assert found[name].isnan().any()
        else:
            torch.testing.assert_close(found[name], weight * up[name])


@pytest.mark.parametrize("stay", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_the_support_is_what_a_path_can_go_on_from(stay: bool, seed: int) -> None:
    """Random masks, of which some lose positions from one step to the next, against all paths."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(1, 3, 4, generator=generator) < (0.6 if seed % 2 else 0.9)
    mask = mask if seed % 3 else mask[:, :1].expand(1, 3, 4)
    allowed = {(k, i) for k in range(4) for i in range(4) if i > k or (stay and i == k)}
    paths = [
        path
        for path in itertools.product(range(4), repeat=3)
        if all(mask[0, t, i] for t, i in enumerate(path)) and set(itertools.pairwise(path)) <= allowed
    ]
    if not paths:
        with pytest.raises(ConfigError, match="no position can be reached"):
            Chain.from_scores(torch.zeros(1, 3, 4), mask, transitions=MonotoneTransitions(4, stay))
        return
    forbidden = torch.full((4, 4), -torch.inf)
    for pair in allowed:
        forbidden[pair] = 0.0
    for moves in (MonotoneTransitions(4, stay), MatrixTransitions(forbidden)):
        support = Chain.from_scores(torch.zeros(1, 3, 4), mask, transitions=moves).support[0]
        # backwards only: a position nobody comes to may be left in it
        going_on = {
            (t, i)
            for t in range(3)
            for i in range(4)
            if mask[0, t, i] and _can_go_on(mask[0].tolist(), allowed, t, i)
        }
        assert {(t, i) for t, i in support.nonzero().tolist()} == going_on


def test_an_example_without_any_position_is_refused() -> None:
    mask = torch.tensor([[[True, False]] * 2, [[False, False]] * 2])
    with pytest.raises(ConfigError, match=r"example 1: no position can be reached at step 0"):
        with_a_future(mask, torch.ones(2, 2, dtype=torch.bool), MonotoneTransitions(2))


def _can_go_on(mask: list[list[bool]], allowed: set[tuple[int, int]], t: int, k: int) -> bool:
    if t == len(mask) - 1:
        return True
    return any(mask[t + 1][i] and (k, i) in allowed and _can_go_on(mask, allowed, t + 1, i) for i in range(4))


def test_padding_of_a_drawn_path_stays_where_the_chain_ended() -> None:
    generator = torch.Generator().manual_seed(0)
    steps = torch.tensor([[True, True, False, False]])
    forwards = torch.full((3, 3), -torch.inf).fill_diagonal_(-torch.inf)
    forwards[0, 1] = forwards[1, 2] = forwards[2, 0] = 0.0  # every step moves on
    chain = Chain.from_scores(torch.zeros(1, 4, 3), transitions=MatrixTransitions(forwards), steps=steps)
    paths = chain.sample(20, generator)[:, 0]
    assert (paths[:, 1] == (paths[:, 0] + 1) % 3).all()
    assert (paths[:, 2:] == paths[:, 1:2]).all()


@pytest.mark.parametrize("stay", [True, False])
def test_expected_moves_of_monotone_transitions_are_sums_over_the_allowed_ones(stay: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    source, destination = torch.randn(2, 1, 3, 4, generator=generator, dtype=DOUBLE)
    found = MonotoneTransitions(4, stay).counts(source, destination)[0]
    for k in range(4):
        for i in range(4):
            moves = [math.exp(source[0, t, k] + destination[0, t, i]) for t in range(3)]
            is_allowed = i > k or (stay and i == k)
            assert found[k, i].item() == pytest.approx(sum(moves) if is_allowed else 0.0)


def test_steps_and_support_of_a_chain_are_narrowed() -> None:
    chain = Chain.from_scores(torch.zeros(1, 3, 3), transitions=MonotoneTransitions(3))
    steps = torch.tensor([[True, True, False]])
    assert torch.equal(chain.over_steps(steps).steps, steps)
    few = torch.tensor([[True, True, False]])
    smaller = Chain.from_scores(torch.zeros(1, 3, 3), few, transitions=MonotoneTransitions(3))
    assert torch.equal(chain.within(smaller).support, smaller.support)
    assert chain.within(chain) is chain
    last = torch.tensor([[False, True, True]])
    other = Chain.from_scores(torch.zeros(1, 3, 3), last, transitions=MonotoneTransitions(3))
    assert smaller.within(other).support.tolist() == [[[False, True, False]] * 3]


def test_what_cannot_come_next_has_no_probability() -> None:
    problem = chains.make(0)
    found = problem.prior().predictive(problem.likelihood())
    assert not found.support.all()
    assert (found.log_probs[~found.support] == -torch.inf).all()


def test_prefix_sums_can_be_differentiated_twice() -> None:
    v = torch.randn(2, 4, generator=torch.Generator().manual_seed(0), dtype=DOUBLE, requires_grad=True)
    assert torch.autograd.gradcheck(_prefix_sums, v)
    assert torch.autograd.gradgradcheck(_prefix_sums, v)
    # the gradient that can be differentiated once more is the same one
    weights = torch.arange(8.0, dtype=DOUBLE).view(2, 4)
    slopes = [
        torch.autograd.grad((weights * _prefix_sums(v)).sum(), v, create_graph=twice)[0]
        for twice in (False, True)
    ]
    torch.testing.assert_close(slopes[1], slopes[0])
