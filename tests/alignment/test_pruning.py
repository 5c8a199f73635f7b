"""Pruned sums against dense ones: the error stays within the mass that is reported as dropped."""

import math

import pytest
import torch
from torch import Tensor

from latentalign.alignment import (
    AlignmentProblem,
    Categorical,
    ContextLikelihood,
    Elbo,
    Enumerate,
    Hard,
    Marginal,
    Objective,
    TableLikelihood,
    Wake,
    exact_posterior,
)
from latentalign.alignment.latents.pruning import CANDIDATES, joint_upper_bound
from latentalign.alignment.learning.marginal import exact_marginal
from tests import oracles
from tests.alignment import problems
from tests.alignment.problems import EXACT, evaluate
from tests.oracles import Number


@pytest.mark.parametrize(
    ("dense", "pruned"),
    [
        (Marginal(), Marginal(prune=1e-15)),
        (Hard(), Hard(Enumerate(prune=1e-15))),
        (Elbo(), Elbo(Enumerate(prune=1e-15))),
        (Wake(), Wake(prune=1e-15)),
    ],
    ids=lambda objective: type(objective).__name__,
)
def test_pruning_next_to_nothing_is_the_dense_sum(dense: Objective, pruned: Objective) -> None:
    """The code that prunes against the code that does not: values, posteriors' diagnostics and all gradients."""
    problem = problems.make(6, lengths=(5, 3))
    expected, found = evaluate(problem, dense), evaluate(problem, pruned)
    torch.testing.assert_close(found.value, expected.value, **EXACT)
    torch.testing.assert_close(found.log_likelihood, expected.log_likelihood, **EXACT)
    assert found.diagnostics["dropped_mass"].max() < 1e-12
    problems.assert_same_gradients(
        problem.gradients(found.surrogate.sum()), problem.gradients(expected.surrogate.sum())
    )


@pytest.mark.parametrize("prune", [1e-9, 0.003, 0.03, 0.2])
@pytest.mark.parametrize("seed", range(4))
def test_pruned_marginal_errs_by_no_more_than_the_mass_it_reports(seed: int, prune: float) -> None:
    problem = problems.make(seed, lengths=(8, 5), steps=4, spread=2.0)
    dense, pruned = evaluate(problem, Marginal()), evaluate(problem, Marginal(prune=prune))
    dropped = pruned.diagnostics["dropped_mass"]
    assert ((dropped >= 0) & (dropped < 1)).all()
    # log Σ_seen ≤ log Σ_all ≤ log Σ_seen − log(1 − dropped)
    gap = dense.value - pruned.value
    assert (gap >= -1e-12).all()
    assert (gap <= -torch.log1p(-dropped) + 1e-12).all()
    torch.testing.assert_close(pruned.surrogate, pruned.value, **EXACT)
    # in the prior's scores the gradient is r − p, so its absolute errors sum to at most twice the mass
    exact = problem.gradients(dense.surrogate.sum())["prior_scores"]
    found = problem.gradients(pruned.surrogate.sum())["prior_scores"]
    assert ((exact - found).abs().sum(dim=-1) <= 2 * dropped + 1e-12).all()
    if prune == 1e-9:
        problems.assert_same_gradients(
            problem.gradients(pruned.surrogate.sum()),
            problem.gradients(dense.surrogate.sum()),
            rtol=1e-6,
            atol=1e-6,
        )
    elif prune == 0.2:
        assert dropped.max() > 0.01


@pytest.mark.parametrize("prune", [0.003, 0.03, 0.2])
def test_the_likelihood_loses_no_more_gradient_than_is_reported(prune: float) -> None:
    problem = problems.make(3, lengths=(8, 5), steps=4, spread=2.0)
    mask = problem.mask[:, None].expand_as(problem.prior_scores)
    table = problem.likelihood().everywhere(mask).detach().requires_grad_()
    bounds = [
        Marginal(prune=x)(AlignmentProblem(problem.prior(), TableLikelihood(table))) for x in (0.0, prune)
    ]
    # the gradient in log f is the responsibility itself
    exact, found = (torch.autograd.grad(bound.surrogate.sum(), table)[0] for bound in bounds)
    dropped = bounds[1].diagnostics["dropped_mass"]
    lost = (exact - found).clamp_min(0).sum(dim=-1)
    assert (lost <= dropped + 1e-12).all()
    assert ((found > 0).sum(dim=-1) >= 1).all()
    if prune == 0.2:
        assert lost.max() > 0.05
        assert (dropped <= lost + 0.2).all()  # and the report is not idly large


class Watched(TableLikelihood):
    """Remembers which pairs were asked for."""

    def __init__(self, table: Tensor) -> None:
        super().__init__(table)
        self.seen = torch.zeros(table.shape, dtype=torch.bool)

    def everywhere(self, mask: Tensor) -> Tensor:
        self.seen |= mask
        return super().everywhere(mask)


@pytest.mark.parametrize("seed", range(4))
def test_positions_that_were_not_evaluated_are_estimated_from_those_that_were(seed: int) -> None:
    """By plain loops: f is taken to be what it is on average, in logarithms, where it was evaluated."""
    problem = problems.make(seed, lengths=(12,), steps=24, spread=2.0)
    mask = problem.mask[:, None].expand_as(problem.prior_scores)
    likelihood = Watched(problem.likelihood().everywhere(mask).detach())
    prior = problem.prior().detach()
    found = exact_marginal(prior, likelihood, prune=0.05)
    assert 0 < int((~likelihood.seen).sum()) < likelihood.seen.numel()
    off, off_by_cutting = 0.0, 0.0
    for step in range(24):
        seen = likelihood.seen[0, step].tolist()
        p, log_f = prior.probs[0, step].tolist(), likelihood.table[0, step].tolist()
        known_values = [value for value, known in zip(log_f, seen, strict=True) if known]
        usual = sum(known_values) / len(known_values)
        joint = [
            probability * math.exp(value if known else usual)
            for probability, value, known in zip(p, log_f, seen, strict=True)
        ]
        estimated = [value / sum(joint) for value in joint]
        assert found.responsibilities[0, step].tolist() == pytest.approx(estimated)
        exact = [probability * math.exp(value) for probability, value in zip(p, log_f, strict=True)]
        exact = [value / sum(exact) for value in exact]
        cut = [value if known else 0.0 for value, known in zip(joint, seen, strict=True)]
        cut = [value / sum(cut) for value in cut]
        off, off_by_cutting = off + math.dist(estimated, exact), off_by_cutting + math.dist(cut, exact)
    assert off < off_by_cutting


class Bounded(TableLikelihood):
    """Knows a bound of its own at every position."""

    def __init__(self, table: Tensor, bound: Tensor, *, is_probability: bool) -> None:
        super().__init__(table)
        self.bound, self._is_probability = bound, is_probability

    @property
    def is_probability(self) -> bool:
        return self._is_probability

    def upper_bound(self, positions: Tensor) -> Tensor:
        return self.bound.gather(-1, positions)


@pytest.mark.parametrize("is_probability", [True, False])
def test_bounds_are_asked_for_the_likeliest_positions_alone(is_probability: bool) -> None:
    """Elsewhere f ≤ 1 is all that is known of a probability, nothing of a density; p = 0 stays impossible."""
    generator = torch.Generator().manual_seed(1)
    size = CANDIDATES + 6
    scores = torch.randn(1, 2, size, generator=generator, dtype=torch.float64)
    scores[0, 1, :3] = -torch.inf
    log_prior = scores.log_softmax(dim=-1)
    bound = -torch.rand(1, 2, size, generator=generator, dtype=torch.float64)
    likelihood = Bounded(bound, bound, is_probability=is_probability)
    found = joint_upper_bound(log_prior, likelihood)
    for step in range(2):
        p, known = log_prior[0, step].tolist(), bound[0, step].tolist()
        likeliest = sorted(range(size), key=lambda position: -p[position])[:CANDIDATES]
        unknown = 0.0 if is_probability else math.inf
        expected = [
            -math.inf if p[i] == -math.inf else p[i] + (known[i] if i in likeliest else unknown)
            for i in range(size)
        ]
        assert found[0, step].tolist() == pytest.approx(expected)


def test_an_output_that_no_position_can_give_drops_nothing() -> None:
    prior = Categorical.from_scores(torch.zeros(1, 1, 3, dtype=torch.float64))
    likelihood = TableLikelihood(torch.full((1, 1, 3), -torch.inf, dtype=torch.float64))
    found = exact_marginal(prior, likelihood, prune=0.01)
    assert found.value.item() == -math.inf
    assert found.dropped.item() == 0


def test_the_likeliest_position_is_kept_however_much_is_pruned() -> None:
    problem = problems.single(0, size=8, spread=0.1)
    posterior = problem.posterior().probs.detach()
    assert posterior.max() < 0.3
    best = int(posterior.argmax())
    estimator = Enumerate(prune=0.3)
    found = estimator(problem.posterior(), problem.likelihood(), prior=problem.prior())
    assert found.value.item() == pytest.approx(problem.plain().output(0, 0).log_f[best])
    narrowed = estimator.narrow(problem.posterior())
    assert narrowed.part.probs[0, 0, best] == 1
    assert narrowed.dropped.item() == pytest.approx(1 - posterior.max().item())
    bound = evaluate(problem, Marginal(prune=0.9))
    assert torch.isfinite(bound.value).all()
    assert problem.gradients(bound.surrogate.sum())["weight"].abs().max() > 0


def test_pruned_marginal_asks_for_few_pairs_once_the_prior_is_sharp() -> None:
    problem = problems.make(0, lengths=(30,), steps=6, spread=1.0)
    problem.prior_scores = (8 * problem.prior_scores.detach()).requires_grad_()
    differentiated = []

    def head(context: Tensor, query: Tensor) -> Tensor:
        differentiated.append((context.shape[0], torch.is_grad_enabled()))
        return problem.head(context, query)

    f = ContextLikelihood(head, problem.values, problem.queries, problem.targets, width=3)
    Marginal(prune=0.01)(AlignmentProblem(problem.prior(), f))
    assert sum(count for count, _ in differentiated) < 0.4 * 30 * 6
    assert sum(count for count, graph in differentiated if graph) <= 3 * 6


def test_a_pruned_bound_is_the_bound_of_the_conditioned_posterior() -> None:
    """By plain loops: q is cut off below ε, made to sum to 1 again, and used in both terms; gradients included.

    But for the prior's gradient, which is that of the KL from the whole q.
    """
    problem = problems.make(2, lengths=(8, 5), steps=4, spread=2.0)
    bound = evaluate(problem, Elbo(Enumerate(prune=0.1)))

    def cut(output: problems.Output) -> Number:
        likely = [q if complex(q).real > 0.1 else 0.0 for q in output.posterior]
        mass = oracles.total(likely)
        return oracles.elbo([q / mass for q in likely], output.prior, output.log_f)

    def whole(output: problems.Output) -> Number:
        return oracles.elbo(output.posterior, output.prior, output.log_f)

    torch.testing.assert_close(bound.value.tolist(), problem.plain().each(cut))
    torch.testing.assert_close(bound.surrogate, bound.value)
    found = problem.gradients(bound.surrogate.sum())
    expected = problem.plain().gradients(cut)
    assert (found["prior_scores"] - expected["prior_scores"]).abs().max() > 0.01
    expected["prior_scores"] = problem.plain().gradients(whole)["prior_scores"]
    problems.assert_same_gradients(found, expected, rtol=1e-7, atol=1e-7)
    assert bound.diagnostics["dropped_mass"].max() > 0.1


def test_a_sparse_prior_does_not_follow_to_where_it_is_zero() -> None:
    prior = Categorical.from_probs(torch.tensor([[[0.7, 0.3, 0.0]]], dtype=torch.float64))
    scores = torch.tensor([[[3.0, 2.0, -3.0]]], dtype=torch.float64, requires_grad=True)
    table = TableLikelihood(torch.tensor([[[-1.0, -2.0, -3.0]]], dtype=torch.float64))
    bound = Elbo(Enumerate(prune=0.1))(
        AlignmentProblem(prior, table, posterior=Categorical.from_scores(scores))
    )
    assert torch.isfinite(bound.surrogate).all()
    (slope,) = torch.autograd.grad(bound.surrogate.sum(), scores)
    assert torch.isfinite(slope).all()


@pytest.mark.parametrize("prune", [0.003, 0.03, 0.2])
@pytest.mark.parametrize("seed", range(3))
def test_what_a_pruned_bound_loses_follows_from_the_mass_it_reports(seed: int, prune: float) -> None:
    """ELBO(q) = (1 − d) ELBO(q given what is kept) + d ELBO(q given the rest) + the entropy of that choice."""
    problem = problems.make(seed, lengths=(8, 5), steps=4, spread=2.0)
    dense, pruned = evaluate(problem, Elbo()), evaluate(problem, Elbo(Enumerate(prune=prune)))
    assert (pruned.value <= evaluate(problem, Marginal()).value + 1e-12).all()  # it is a bound
    dropped = pruned.diagnostics["dropped_mass"]
    posterior = problem.posterior()
    kept = posterior.truncated(prune).support
    rest = Elbo()(
        AlignmentProblem(
            problem.prior(), problem.likelihood(), posterior=posterior.restricted(posterior.support & ~kept)
        )
    )
    lost = dropped > 0
    choice = -(dropped * dropped.log() + (1 - dropped) * torch.log1p(-dropped))
    parts = (1 - dropped) * pruned.value + dropped * rest.value + choice
    torch.testing.assert_close(dense.value[lost], parts[lost])
    torch.testing.assert_close(dense.value[~lost], pruned.value[~lost])
    if prune == 0.2:
        assert dropped.max() > 0.01
        assert (dense.value - pruned.value).abs().max() > 1e-3


def test_pruning_does_not_miss_a_narrow_density_at_an_unlikely_position() -> None:
    """f may exceed 1 where outputs are continuous: the third position explains the output, whatever its prior."""
    scores = torch.tensor([[[0.0, 0.1, -7.0]]], dtype=torch.float64, requires_grad=True)
    prior = Categorical.from_scores(scores)
    values = torch.tensor([[[0.9], [1.1], [0.0]]], dtype=torch.float64)
    spread = torch.tensor([[[5.0], [5.0], [1e-6]]], dtype=torch.float64)

    def head(context: Tensor, query: Tensor) -> torch.distributions.Distribution:
        return torch.distributions.Normal(context[:, 0], context[:, 1])

    targets = torch.zeros(1, 1, dtype=torch.float64)
    f = ContextLikelihood(head, torch.cat([values, spread], dim=-1), torch.zeros(1, 1, 1).double(), targets)
    dense, pruned = Marginal()(AlignmentProblem(prior, f)), Marginal(prune=0.01)(AlignmentProblem(prior, f))
    assert exact_posterior(prior, f).probs[0, 0, 2] > 0.99
    torch.testing.assert_close(pruned.value, dense.value)
    (exact,) = torch.autograd.grad(dense.surrogate.sum(), scores, retain_graph=True)
    (found,) = torch.autograd.grad(pruned.surrogate.sum(), scores)
    torch.testing.assert_close(found, exact)
    table = TableLikelihood(torch.tensor([[[-3.0, -3.0, 12.0]]], dtype=torch.float64))
    torch.testing.assert_close(
        Marginal(prune=0.01)(AlignmentProblem(prior, table)).value,
        Marginal()(AlignmentProblem(prior, table)).value,
    )


@pytest.mark.parametrize("prune", [0.003, 0.2])
def test_pruned_wake_still_fits_q_to_nearly_the_responsibilities(prune: float) -> None:
    problem = problems.make(1, lengths=(8, 5), steps=4, spread=2.0)
    dense, pruned = evaluate(problem, Wake()), evaluate(problem, Wake(prune=prune))
    dropped = pruned.diagnostics["dropped_mass"]
    exact = problem.gradients(dense.surrogate.sum())["posterior_scores"]
    found = problem.gradients(pruned.surrogate.sum())["posterior_scores"]
    assert ((exact - found).abs().sum(dim=-1) <= 2 * dropped + 1e-12).all()
