"""Values and gradients of every objective against plain-loop enumeration."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from latentalign.alignment import (
    AlignmentProblem,
    Categorical,
    ContextLikelihood,
    Elbo,
    Enumerate,
    Estimator,
    Hard,
    Marginal,
    Reinforce,
    ReweightedWakeSleep,
    RunningMean,
    Soft,
    StochasticEM,
    StochasticVI,
    TableLikelihood,
    Vimco,
    Wake,
)
from latentalign.alignment.latents.categorical import external_posterior
from tests import oracles
from tests.alignment import problems
from tests.alignment.problems import EXACT, Output, Problem, evaluate

SEEDS = range(3)


def svi_bound(steps: int, rate: float, start: str) -> Callable[[Output], oracles.Number]:
    """ELBO at the q that the inner steps reach."""

    def bound(output: Output) -> oracles.Number:
        first = output.prior if start == "prior" else output.posterior
        scores = [oracles.log(p) if oracles.positive(p) else 0.0 for p in first]
        q = oracles.svi(scores, output.prior, output.log_f, steps=steps, learning_rate=rate)
        return oracles.elbo(q, output.prior, output.log_f)

    return bound


DETERMINISTIC = {
    "soft": (Soft(), lambda o: o.soft),
    "marginal": (Marginal(), lambda o: oracles.marginal(o.prior, o.log_f)),
    "hard": (Hard(), lambda o: oracles.hard(o.prior, o.log_f)),
    "variational": (Elbo(), lambda o: oracles.elbo(o.posterior, o.prior, o.log_f)),
    "wake": (Wake(), lambda o: oracles.marginal(o.prior, o.log_f)),
    "em": (StochasticEM(estimator=Enumerate()), lambda o: oracles.marginal(o.prior, o.log_f)),
    "svi": (StochasticVI(steps=3, learning_rate=0.7), svi_bound(3, 0.7, "prior")),
    "semi-amortised": (
        StochasticVI(steps=2, learning_rate=0.5, start="posterior"),
        svi_bound(2, 0.5, "posterior"),
    ),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", DETERMINISTIC)
def test_value_equals_plain_enumeration(name: str, seed: int) -> None:
    objective, oracle = DETERMINISTIC[name]
    problem = problems.make(seed, lengths=(4, 3, 1), steps=2)
    bound = evaluate(problem, objective)
    torch.testing.assert_close(bound.value.tolist(), problem.plain().each(oracle), **EXACT)
    torch.testing.assert_close(bound.surrogate, bound.value, **EXACT)
    assert not bound.value.requires_grad
    assert bound.surrogate.requires_grad


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["soft", "marginal", "hard", "variational", "em"])
def test_gradient_equals_that_of_plain_enumeration(name: str, seed: int) -> None:
    objective, oracle = DETERMINISTIC[name]
    problem = problems.make(seed)
    found = problem.gradients(evaluate(problem, objective).surrogate.sum())
    problems.assert_same_gradients(found, problem.plain().gradients(oracle))


@pytest.mark.parametrize("seed", SEEDS)
def test_wake_moves_theta_by_the_marginal_and_phi_towards_the_responsibilities(seed: int) -> None:
    problem = problems.make(seed)
    plain = problem.plain()
    found = problem.gradients(evaluate(problem, Wake()).surrogate.sum())
    expected = plain.gradients(lambda o: oracles.marginal(o.prior, o.log_f))
    # ∂/∂score_i of Σ_j r_j log q_j is r_i − q_i
    expected["posterior_scores"] = torch.tensor(
        [
            [
                [r - q for r, q in zip(oracles.responsibilities(o.prior, o.log_f), o.posterior, strict=True)]
                for o in (plain.output(b, t) for t in range(2))
            ]
            for b in range(2)
        ],
        dtype=torch.float64,
    )
    problems.assert_same_gradients(found, expected)


# two paths: nothing is below 1e-12 here
@pytest.mark.parametrize("prune", [0.0, 1e-12], ids=["dense", "pruned"])
@pytest.mark.parametrize("start", ["prior", "posterior"])
def test_svi_moves_theta_at_the_q_it_found_and_the_start_through_its_steps(start: str, prune: float) -> None:
    problem = problems.make(1)
    objective = StochasticVI(steps=3, learning_rate=0.6, start=start, estimator=Enumerate(prune=prune))
    found = problem.gradients(evaluate(problem, objective).surrogate.sum())
    plain = problem.plain()

    def reached(output: Output) -> list[oracles.Number]:
        first = output.prior if start == "prior" else output.posterior
        scores = [oracles.log(p) if oracles.positive(p) else 0.0 for p in first]
        return oracles.svi(scores, output.prior, output.log_f, steps=3, learning_rate=0.6)

    fixed = iter([reached(plain.output(b, t)) for b in range(2) for t in range(2)] * 100)
    expected = plain.gradients(lambda o: oracles.elbo(next(fixed), o.prior, o.log_f))
    through = plain.gradients(svi_bound(3, 0.6, start))["posterior_scores"]
    expected["posterior_scores"] = through
    assert (through.abs().max() > 1e-3) == (start == "posterior")
    problems.assert_same_gradients(found, expected)


@pytest.mark.parametrize("steps", [1, 10, 500])
def test_svi_climbs_from_the_hard_bound_to_the_log_marginal(steps: int) -> None:
    problem = problems.make(2, lengths=(4, 3))
    found = evaluate(problem, StochasticVI(steps=steps, learning_rate=0.5)).value
    start, limit = evaluate(problem, Hard()).value, evaluate(problem, Marginal()).value
    assert (found > start).all()
    assert (found <= limit + 1e-12).all()
    if steps == 500:
        torch.testing.assert_close(found, limit, atol=1e-5, rtol=0)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("estimator", [Enumerate(), Reinforce(samples=2)], ids=["enumerate", "reinforce"])
@pytest.mark.parametrize("start", ["prior", "posterior"])
def test_svi_works_where_gradients_are_off(start: str, estimator: Estimator, mode) -> None:
    problem = problems.make(2)
    objective = StochasticVI(steps=3, start=start, estimator=estimator)
    with mode():
        inside = evaluate(problem, objective, generator=torch.Generator().manual_seed(0))
    assert not inside.surrogate.requires_grad
    outside = evaluate(problem, objective, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(inside.value.clone(), outside.value)


# ------------------------------------------------------------------------------------------ relations


@pytest.mark.parametrize("seed", range(10))
def test_elbo_is_below_the_log_marginal_and_touches_it_at_the_exact_posterior(seed: int) -> None:
    problem = problems.make(seed, lengths=(4, 2))
    exact = evaluate(problem, Marginal()).value
    bound = evaluate(problem, Elbo())
    assert (bound.value < exact).all()
    plain = problem.plain()
    true = [
        [oracles.responsibilities(o.prior, o.log_f) for o in (plain.output(b, t) for t in range(2))]
        for b in range(2)
    ]
    posterior = Categorical.from_probs(torch.tensor(true, dtype=torch.float64), problem.mask)
    tight = Elbo()(AlignmentProblem(problem.prior(), problem.likelihood(), posterior=posterior))
    torch.testing.assert_close(tight.value, exact, **EXACT)
    # the gap of any q is its divergence from the exact posterior
    torch.testing.assert_close(exact - bound.value, problem.posterior().kl(posterior).detach(), **EXACT)


def test_hard_is_the_elbo_with_the_prior_as_posterior() -> None:
    problem = problems.make(3)
    hard = evaluate(problem, Hard())
    elbo = Elbo()(AlignmentProblem(problem.prior(), problem.likelihood(), posterior=problem.prior()))
    torch.testing.assert_close(hard.value, elbo.value, **EXACT)
    torch.testing.assert_close(elbo.kl, torch.zeros_like(elbo.kl))
    problems.assert_same_gradients(
        problem.gradients(hard.surrogate.sum()), problem.gradients(elbo.surrogate.sum())
    )


def linear(problem: Problem) -> ContextLikelihood:
    """f(x, z) = Σ_i z_i π_i: the values are output distributions themselves."""
    generator = torch.Generator().manual_seed(0)
    batch, positions = problem.mask.shape
    tables = torch.rand(batch, positions, 3, generator=generator, dtype=torch.float64).softmax(dim=-1)
    return ContextLikelihood(lambda context, _: context.log(), tables, problem.queries, problem.targets)


def test_soft_is_exact_when_the_likelihood_is_linear_in_the_alignment() -> None:
    problem = problems.make(4, lengths=(4, 2))
    f = linear(problem)
    soft, exact = (
        Soft()(AlignmentProblem(problem.prior(), f)),
        Marginal()(AlignmentProblem(problem.prior(), f)),
    )
    torch.testing.assert_close(soft.value, exact.value, **EXACT)
    assert (
        Soft()(AlignmentProblem(problem.prior(), problem.likelihood())).value
        - evaluate(problem, Marginal()).value
    ).abs().min() > 1e-4


def test_one_hot_external_posterior_gives_the_complete_data_likelihood() -> None:
    problem = problems.make(5, lengths=(3, 2))
    links = torch.zeros(2, 2, 3, dtype=torch.float64)
    links[:, 0, 1] = links[:, 1, 0] = 1
    bound = Elbo()(
        AlignmentProblem(
            problem.prior(), problem.likelihood(), posterior=external_posterior(links, problem.mask)
        )
    )
    plain = problem.plain()
    expected = [
        [math.log(o.prior[i]) + o.log_f[i] for i, o in ((1, plain.output(b, 0)), (0, plain.output(b, 1)))]
        for b in range(2)
    ]
    torch.testing.assert_close(bound.value.tolist(), expected, **EXACT)
    assert problem.gradients(bound.surrogate.sum())["posterior_scores"].abs().max() == 0


@pytest.mark.parametrize("normalizer", ["sparsemax", "entmax15"])
def test_a_sparse_prior_enumerates_its_support_only(normalizer: str) -> None:
    problem = problems.make(3, lengths=(5, 3), steps=3)
    prior = problem.prior(normalizer)
    assert not prior.support[problem.mask[:, None].expand_as(prior.support)].all()
    plain, probs = problem.plain(), prior.probs.tolist()
    asked = []

    def head(context: Tensor, query: Tensor) -> Tensor:
        asked.append(context.shape[0])
        return problem.head(context, query)

    f = ContextLikelihood(head, problem.values, problem.queries, problem.targets, width=3)
    value = Marginal()(AlignmentProblem(prior, f)).value
    assert asked == [int(prior.support.sum())]
    tables = [[plain.output(b, t).log_f for t in range(3)] for b in range(2)]
    expected = [[oracles.marginal(probs[b][t], tables[b][t]) for t in range(3)] for b in range(2)]
    torch.testing.assert_close(value.tolist(), expected, **EXACT)
    bound = Elbo()(AlignmentProblem(prior, f, posterior=problem.posterior()))
    assert torch.isfinite(bound.kl).all()  # q is conditioned on the prior's support
    assert (bound.value <= value + 1e-12).all()
    assert all(torch.isfinite(slope).all() for slope in problem.gradients(bound.surrogate.sum()).values())


def test_impossible_positions_of_a_table_do_no_harm_to_the_marginal() -> None:
    logs = torch.tensor([[[-1.0, -math.inf, -2.0]]], dtype=torch.float64, requires_grad=True)
    scores = torch.zeros(1, 1, 3, dtype=torch.float64, requires_grad=True)
    prior = Categorical.from_scores(scores)
    for bound in (
        Marginal()(AlignmentProblem(prior, TableLikelihood(logs))),
        Marginal(prune=0.01)(AlignmentProblem(prior, TableLikelihood(logs))),
        Wake()(AlignmentProblem(prior, TableLikelihood(logs), posterior=prior)),
    ):
        assert bound.value.item() == pytest.approx(math.log((math.exp(-1) + math.exp(-2)) / 3))
        assert torch.isfinite(bound.log_likelihood).all()
        for slope in torch.autograd.grad(bound.surrogate.sum(), (logs, scores), retain_graph=True):
            assert torch.isfinite(slope).all()


# ------------------------------------------------------------------------------------------ what is reported


@pytest.mark.parametrize("name", [*DETERMINISTIC, "rws", "vimco"])
def test_reported_parts(name: str) -> None:
    problem = problems.make(7, lengths=(4, 2))
    objectives = {name: objective for name, (objective, _) in DETERMINISTIC.items()}
    objectives |= {"rws": ReweightedWakeSleep(samples=3), "vimco": Vimco(samples=3)}
    bound = evaluate(problem, objectives[name], generator=torch.Generator().manual_seed(0))
    parts = [bound.value, bound.surrogate, bound.log_likelihood, bound.kl, *bound.diagnostics.values()]
    assert all(part.shape == (2, 2) for part in parts)
    assert not any(
        part.requires_grad for part in (bound.log_likelihood, bound.kl, *bound.diagnostics.values())
    )
    torch.testing.assert_close(bound.diagnostics["prior_entropy"], problem.prior().entropy().detach())
    if name in ("soft", "marginal", "hard"):
        assert (bound.kl == 0).all()
        assert "posterior_entropy" not in bound.diagnostics
    elif name in ("variational", "svi", "semi-amortised"):
        torch.testing.assert_close(bound.log_likelihood - bound.kl, bound.value)
    if name in ("variational", "wake", "rws", "vimco"):
        torch.testing.assert_close(bound.kl, problem.posterior().kl(problem.prior()).detach())
        torch.testing.assert_close(
            bound.diagnostics["posterior_entropy"], problem.posterior().entropy().detach()
        )


def test_an_objective_names_its_parts_that_have_a_state() -> None:
    baseline = RunningMean()
    assert list(Elbo(Reinforce(baseline=baseline)).modules()) == [baseline]
    assert list(Marginal().modules()) == []
