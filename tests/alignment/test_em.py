"""EM by samples: q by Bayes' rule from a softmax over a shortlist, against plain loops over positions and words."""

import math

import pytest
import torch
from torch import Tensor, nn

from latentalign.alignment import (
    AlignmentProblem,
    Chain,
    ContextLikelihood,
    Elbo,
    Enumerate,
    Marginal,
    StochasticEM,
    exact_posterior,
)
from latentalign.alignment.chains.matrix import MatrixTransitions
from latentalign.alignment.likelihoods.softmax_head import SoftmaxHead
from tests.alignment import problems
from tests.alignment.problems import EXACT, Problem

VOCABULARY = 12
WHOLE = StochasticEM(shortlist=VOCABULARY, estimator=Enumerate())


def likelihood_of(problem: Problem) -> ContextLikelihood:
    output = nn.Linear(*problem.weight.shape[::-1], bias=False, dtype=problem.weight.dtype)
    del output.weight
    output.weight = problem.weight  # the leaf itself, so that gradients reach it
    return ContextLikelihood(SoftmaxHead(output), problem.values, problem.queries, problem.targets)


def make(seed: int, **options: object) -> Problem:
    return problems.make(seed, lengths=(5, 3), steps=4, vocabulary=VOCABULARY, features=3, **options)


def plain_shortlist(problem: Problem, b: int, size: int) -> list[int]:
    """The words of an example and its likeliest ones under soft attention, by plain loops."""
    plain = problem.plain()
    total = [0.0] * VOCABULARY
    for t in range(4):
        prior = plain.output(b, t).prior
        mean = [
            sum(p * value[d] for p, value in zip(prior, plain.values[b], strict=True))
            for d in range(len(plain.values[b][0]))
        ]
        logits = plain_logits(mean, plain.queries[b][t], plain.weight)
        normaliser = sum(math.exp(logit) for logit in logits)
        total = [known + math.exp(logit) / normaliser for known, logit in zip(total, logits, strict=True)]
    likeliest = sorted(range(VOCABULARY), key=lambda word: -total[word])[:size]
    return sorted({*plain.targets[b], *likeliest})


def plain_logits(context: list[float], query: list[float], weight: list[list[float]]) -> list[float]:
    hidden = [math.tanh(x + q) for x, q in zip(context, query, strict=True)]
    return [sum(w * h for w, h in zip(row, hidden, strict=True)) for row in weight]


@pytest.mark.parametrize("size", [1, 3, 6, VOCABULARY])
@pytest.mark.parametrize("seed", range(3))
def test_a_shortlist_is_what_plain_loops_find(seed: int, size: int) -> None:
    problem = make(seed)
    prior = problem.prior()
    steps = torch.ones(2, 4, dtype=torch.bool)
    found = likelihood_of(problem).by_shortlist(prior.mean(), prior.support, size=size, steps=steps)
    plain = problem.plain()
    for b, length in enumerate((5, 3)):
        words = plain_shortlist(problem, b, size)
        for t in range(4):
            for i in range(5):
                logits = plain_logits(plain.values[b][i], plain.queries[b][t], plain.weight)
                rest = math.log(sum(math.exp(logits[word]) for word in words))
                expected = logits[plain.targets[b][t]] - rest if i < length else 0.0
                assert float(found[b, t, i]) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_it_is_never_below_log_f(seed: int) -> None:
    problem = make(seed)
    prior, likelihood = problem.prior(), likelihood_of(problem)
    steps = torch.ones(2, 4, dtype=torch.bool)
    exact = likelihood.everywhere(prior.support)
    for size in (1, 4, 8):
        rough = likelihood.by_shortlist(prior.mean(), prior.support, size=size, steps=steps)
        assert (rough >= exact - 1e-12).all()
        assert (rough > exact + 1e-6).any()


@pytest.mark.parametrize("seed", range(3))
def test_with_the_whole_vocabulary_it_is_the_marginal(seed: int) -> None:
    problem = make(seed)
    found, exact = (
        objective(AlignmentProblem(problem.prior(), likelihood_of(problem)))
        for objective in (WHOLE, Marginal())
    )
    torch.testing.assert_close(found.value, exact.value, **EXACT)
    problems.assert_same_gradients(
        problem.gradients(found.surrogate.sum()), problem.gradients(exact.surrogate.sum())
    )


def chain_of(problem: Problem, moves: Tensor) -> Chain:
    return Chain.from_scores(problem.prior_scores, problem.mask, transitions=MatrixTransitions(moves))


@pytest.mark.parametrize("seed", range(3))
def test_of_a_chain_it_is_the_marginal_over_paths(seed: int) -> None:
    problem = make(seed)
    moves = torch.linspace(-2, 2, 25, dtype=torch.float64).view(5, 5).requires_grad_()
    sums = []
    for objective in (WHOLE, Marginal()):
        bound = objective(AlignmentProblem(chain_of(problem, moves), likelihood_of(problem)))
        leaves = [problem.prior_scores, problem.values, problem.queries, problem.weight, moves]
        total = bound.surrogate.sum()
        sums.append([bound.value.sum(), *torch.autograd.grad(total, leaves)])
    for found, exact in zip(*sums, strict=True):
        torch.testing.assert_close(found, exact, **EXACT)


@pytest.mark.parametrize("seed", range(3))
def test_the_prior_learns_without_noise_from_one_sample(seed: int) -> None:
    """Its part of the bound is in closed form; only f is read at the sample."""
    problem = make(seed)
    found, exact = (
        problem.gradients(
            objective(
                AlignmentProblem(problem.prior(), likelihood_of(problem)),
                generator=torch.Generator().manual_seed(seed),
            ).surrogate.sum()
        )
        for objective in (StochasticEM(shortlist=VOCABULARY), Marginal())
    )
    torch.testing.assert_close(found["prior_scores"], exact["prior_scores"], **EXACT)
    assert not torch.allclose(found["values"], exact["values"], atol=1e-3)


def test_a_longer_list_makes_the_bound_tighter() -> None:
    problem = make(3)
    values = [
        float(
            StochasticEM(shortlist=size, estimator=Enumerate())(
                AlignmentProblem(problem.prior(), likelihood_of(problem))
            ).value.sum()
        )
        for size in (1, 4, VOCABULARY)
    ]
    exact = float(Marginal()(AlignmentProblem(problem.prior(), likelihood_of(problem))).value.sum())
    assert values[0] < values[1] < values[2] == pytest.approx(exact)


def test_nothing_is_learnt_through_q() -> None:
    """The gradient is that of a bound whose q is given."""
    problem = make(4)
    objective = StochasticEM(shortlist=2, estimator=Enumerate())
    found = problem.gradients(
        objective(AlignmentProblem(problem.prior(), likelihood_of(problem))).surrogate.sum()
    )
    prior, likelihood = problem.prior(), likelihood_of(problem)
    q = objective.posterior(AlignmentProblem(prior, likelihood))
    assert not q.alignment_probs().requires_grad
    given = Elbo()(AlignmentProblem(prior, likelihood, posterior=q)).surrogate.sum()
    problems.assert_same_gradients(found, problem.gradients(given))
    assert not torch.allclose(
        q.alignment_probs(), exact_posterior(prior, likelihood).alignment_probs(), atol=1e-3
    )


def test_padding_says_nothing_about_the_list() -> None:
    """Steps that do not count neither add words to the list nor change the bound of those that do."""
    problem = make(5)
    weights = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]], dtype=torch.bool)
    objective = StochasticEM(shortlist=2, estimator=Enumerate())

    def value(queries: Tensor) -> Tensor:
        likelihood = likelihood_of(problem)
        moved = ContextLikelihood(likelihood.head, problem.values, queries, problem.targets)
        return objective(AlignmentProblem(problem.prior(), moved, weights=weights)).value[weights]

    other = problem.queries.detach().clone()
    other[0, 2:] += 3.0
    torch.testing.assert_close(value(problem.queries), value(other), **EXACT)
