"""Every objective and estimator on chains, against all paths and all tuples of samples."""

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from latentalign.alignment import (
    AlignmentProblem,
    Categorical,
    Chain,
    ChainDistribution,
    ContextLikelihood,
    Elbo,
    Enumerate,
    Exact,
    Hard,
    KMax,
    LeaveOneOut,
    Marginal,
    NoBaseline,
    Reinforce,
    ReweightedWakeSleep,
    Sampled,
    Soft,
    SoftContext,
    StochasticVI,
    Vimco,
    Wake,
    build_distribution,
)
from tests import chain_oracles, oracles
from tests.alignment import chains
from tests.alignment.chains import DOUBLE, EXACT, ChainProblem, PlainProblem

SEEDS = range(2)


def elbo(plain: PlainProblem, q: dict) -> oracles.Number:
    return chain_oracles.expected(q, plain.log_f) - chain_oracles.kl(q, chain_oracles.law(plain.prior))


EXPECTED = {
    "marginal": (Marginal(), None, lambda p: oracles.total(chain_oracles.increments(p.prior, p.log_f))),
    "hard": (Hard(), None, lambda p: chain_oracles.expected(chain_oracles.law(p.prior), p.log_f)),
    "variational, chain": (Elbo(), "chain", lambda p: elbo(p, chain_oracles.law(p.posterior))),
    "variational, factorised": (
        Elbo(),
        "factorised",
        lambda p: elbo(p, chain_oracles.independent(p.factorised())),
    ),
}


def posterior_of(problem: ChainProblem, kind: str | None):
    return None if kind is None else problem.posterior() if kind == "chain" else problem.factorised()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", EXPECTED)
def test_values_and_gradients_are_those_of_all_paths(name: str, seed: int) -> None:
    objective, kind, expected = EXPECTED[name]
    problem = chains.make(seed)
    bound = problem.bound(objective, posterior_of(problem, kind))
    real = problem.steps  # independent steps know no padding, and report something there
    for b, plain in enumerate(problem.plain()):
        assert bound.value[b, real[b]].sum().item() == pytest.approx(expected(plain))
    parts = [bound.value, bound.surrogate, bound.kl, bound.log_likelihood, *bound.diagnostics.values()]
    assert all(part.shape == problem.steps.shape and torch.isfinite(part).all() for part in parts)
    assert (bound.value[~real] == 0).all() or kind == "factorised"
    torch.testing.assert_close(bound.surrogate, bound.value)
    chains.assert_same_gradients(problem, problem.gradients((bound.surrogate * real).sum()), expected)


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_touches_the_marginal_at_the_exact_posterior(seed: int) -> None:
    problem = chains.make(seed)
    exact = problem.bound(Marginal()).value.sum(dim=-1)
    assert (problem.bound(Elbo()).value.sum(dim=-1) < exact).all()
    assert ((problem.bound(Elbo(), problem.factorised()).value * problem.steps).sum(dim=-1) < exact).all()
    best = problem.prior().marginalise(problem.log_f).posterior
    torch.testing.assert_close(problem.bound(Elbo(), best).value.sum(dim=-1), exact, **EXACT)


@pytest.mark.parametrize("kind", ["chain", "factorised"])
def test_wake_fits_q_to_the_smoothed_posterior(kind: str) -> None:
    problem = chains.make(1)
    bound = problem.bound(Wake(), posterior_of(problem, kind))
    found = problem.gradients(bound.surrogate.sum())
    plain = problem.plain()

    def fit(p: PlainProblem, truth: dict) -> oracles.Number:
        """E_posterior[log q] with the posterior held fixed."""
        if kind == "chain":
            terms = [share * oracles.total(p.posterior.log_prob(path)) for path, share in truth.items()]
        else:
            rows = p.factorised()
            terms = [
                share * oracles.total([oracles.log(rows[t][i]) for t, i in enumerate(path)])
                for path, share in truth.items()
            ]
        return oracles.total(terms)

    theta = [example.gradients(EXPECTED["marginal"][2]) for example in plain]
    phi = []
    for example in plain:
        truth = chain_oracles.posterior(example.prior, example.log_f)
        phi.append(example.gradients(lambda p, truth=truth: fit(p, truth)))
    for name in chains.LEAVES:
        parts = phi if name.startswith("posterior") else theta
        total = chains.padded_sum([part[name] for part in parts], found[name].shape)
        torch.testing.assert_close(found[name], total, msg=lambda text, name=name: f"{name}: {text}", **EXACT)
    torch.testing.assert_close(bound.value, problem.bound(Marginal()).value)


# ------------------------------------------------------------------------------------------ samples


@contextmanager
def chosen_paths() -> Iterator[list[Tensor]]:
    """While this is open, every latent 'draws' the paths in the list's only item."""
    holder: list[Tensor] = []
    with pytest.MonkeyPatch.context() as patch:
        for kind in (Chain, Categorical):
            patch.setattr(kind, "sample", lambda self, n, generator=None: holder[0])
        yield holder


def all_tuples(law: dict, k: int) -> Iterator[tuple[Tensor, float]]:
    for paths in itertools.product(law, repeat=k):
        yield torch.tensor(paths)[:, None], math.prod(law[path] for path in paths)


def small(seed: int) -> ChainProblem:
    return chains.make(seed, sizes=((2, 2),))


def expected_over(problem: ChainProblem, law: dict, k: int, objective, q=None) -> tuple[float, dict]:
    mean, gradients = 0.0, dict.fromkeys(chains.LEAVES, 0.0)
    with chosen_paths() as holder:
        for paths, chance in all_tuples(law, k):
            holder[:] = [paths]
            bound = problem.bound(objective, q)
            torch.testing.assert_close(bound.surrogate, bound.value)
            mean += chance * bound.value.sum().item()
            for name, slope in problem.gradients(bound.surrogate.sum()).items():
                gradients[name] = gradients[name] + chance * slope
    return mean, gradients


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("name", ["hard", "variational, chain", "variational, factorised"])
@pytest.mark.parametrize("seed", SEEDS)
def test_reinforce_is_unbiased_over_all_samples(seed: int, name: str, k: int) -> None:
    problem = small(seed)
    objective, kind, exact = EXPECTED[name]
    (plain,) = problem.plain()
    laws = {
        None: chain_oracles.law(plain.prior),
        "chain": chain_oracles.law(plain.posterior),
        "factorised": chain_oracles.independent(plain.factorised()),
    }
    sampled = type(objective)(Reinforce(samples=k, baseline=LeaveOneOut() if k > 1 else NoBaseline()))
    mean, found = expected_over(problem, laws[kind], k, sampled, posterior_of(problem, kind))
    assert mean == pytest.approx(exact(plain))
    chains.assert_same_gradients(problem, found, exact)


@pytest.mark.parametrize("kind", ["chain", "factorised"])
@pytest.mark.parametrize("seed", SEEDS)
def test_vimco_is_unbiased_for_the_bound_of_whole_sequences(seed: int, kind: str) -> None:
    problem, k = small(seed), 2
    (plain,) = problem.plain()

    def q_law(p: PlainProblem) -> dict:
        return (
            chain_oracles.law(p.posterior) if kind == "chain" else chain_oracles.independent(p.factorised())
        )

    def importance_bound(p: PlainProblem) -> oracles.Number:
        q, prior = q_law(p), chain_oracles.law(p.prior)
        weight = {
            path: prior[path] * oracles.exp(chain_oracles.outputs(path, p.log_f)) / q[path] for path in q
        }
        terms = []
        for one, two in itertools.product(q, repeat=2):
            terms.append(q[one] * q[two] * oracles.log((weight[one] + weight[two]) / 2))
        return oracles.total(terms)

    mean, found = expected_over(problem, q_law(plain), k, Vimco(samples=k), posterior_of(problem, kind))
    assert mean == pytest.approx(importance_bound(plain))
    chains.assert_same_gradients(problem, found, importance_bound)


@pytest.mark.parametrize("seed", SEEDS)
def test_reweighted_wake_sleep_weighs_whole_sequences(seed: int) -> None:
    """Every pair of samples by its definition: θ by Σ w̃ ∇log p(y,z), φ by Σ w̃ ∇log q(z)."""
    problem, k = small(seed), 2
    (plain,) = problem.plain()
    q, prior = chain_oracles.law(plain.posterior), chain_oracles.law(plain.prior)
    with chosen_paths() as holder:
        for paths, _ in all_tuples(q, k):
            holder[:] = [paths]
            bound = problem.bound(ReweightedWakeSleep(samples=k))
            chosen = [tuple(path) for path in paths[:, 0].tolist()]
            weights = [prior[z] * math.exp(chain_oracles.outputs(z, plain.log_f)) / q[z] for z in chosen]
            assert bound.value.sum().item() == pytest.approx(math.log(sum(weights) / k))

            def direction(p: PlainProblem, chosen=chosen, weights=weights) -> oracles.Number:
                terms = []
                for z, weight in zip(chosen, weights, strict=True):
                    joint = oracles.total(p.prior.log_prob(z)) + chain_oracles.outputs(z, p.log_f)
                    both = joint + oracles.total(p.posterior.log_prob(z))
                    terms.append(weight / sum(weights) * both)
                return oracles.total(terms)

            chains.assert_same_gradients(problem, problem.gradients(bound.surrogate.sum()), direction)


@pytest.mark.parametrize("estimator", [Enumerate(), Reinforce(samples=2, baseline=LeaveOneOut())])
@pytest.mark.parametrize("start", ["prior", "posterior"])
def test_svi_climbs_on_chains(start: str, estimator) -> None:
    problem = chains.make(3)
    objective = StochasticVI(steps=5, learning_rate=0.5, start=start, estimator=estimator)
    bound = problem.bound(objective, generator=torch.Generator().manual_seed(0))
    exact = problem.bound(Marginal()).value.sum(dim=-1)
    if isinstance(estimator, Enumerate):
        begin = problem.bound(Hard() if start == "prior" else Elbo()).value.sum(dim=-1)
        assert (bound.value.sum(dim=-1) > begin).all()
        assert (bound.value.sum(dim=-1) <= exact + 1e-12).all()
    slopes = problem.gradients(bound.surrogate.sum())
    assert (slopes["posterior_scores"].abs().max() > 0) == (start == "posterior")
    assert slopes["jumps"].abs().max() > 0
    if isinstance(estimator, Enumerate):
        far = StochasticVI(steps=400, learning_rate=0.5, start="prior")
        torch.testing.assert_close(problem.bound(far).value.sum(dim=-1), exact, rtol=0, atol=2e-2)


def test_a_pruned_bound_on_a_chain_is_a_bound() -> None:
    problem = chains.make(2, sizes=((4, 5), (3, 4)), spread=2.0)
    pruned = problem.bound(Elbo(Enumerate(prune=0.1)))
    assert (pruned.value.sum(dim=-1) <= problem.bound(Marginal()).value.sum(dim=-1) + 1e-12).all()
    assert pruned.diagnostics["dropped_mass"].max() > 0
    assert all(torch.isfinite(slope).all() for slope in problem.gradients(pruned.surrogate.sum()).values())


# ------------------------------------------------------------------------------------------ prediction


def context_problem(seed: int = 0) -> tuple[ChainProblem, ContextLikelihood]:
    problem = chains.make(seed, sizes=((3, 3), (3, 2)))
    generator = torch.Generator().manual_seed(seed)
    values, queries, weight = (
        torch.randn(*shape, generator=generator, dtype=DOUBLE) for shape in ((2, 3, 2), (2, 3, 2), (4, 2))
    )
    targets = torch.randint(4, (2, 3), generator=generator)
    f = ContextLikelihood(lambda x, q: torch.tanh(x + q) @ weight.T, values, queries, targets)
    problem.log_f = f.everywhere(problem.mask[:, None].expand(2, 3, 3)).detach()
    return problem, f


def test_predictions_of_chains() -> None:
    problem, f = context_problem()
    prior = problem.prior()
    exact = prior.marginalise(problem.log_f).value
    torch.testing.assert_close(Exact().log_likelihood(prior, f), exact)
    torch.testing.assert_close(KMax(3).log_likelihood(prior, f), exact)
    every = Exact().log_probs(prior, f)
    torch.testing.assert_close(every.exp().sum(dim=-1), torch.ones(2, 3, dtype=DOUBLE))
    torch.testing.assert_close(every.gather(-1, f.targets[..., None])[..., 0], exact)
    soft = f.mixture(prior.mean())
    torch.testing.assert_close(SoftContext().log_likelihood(prior, f), soft)
    # K-max goes on from the likeliest positions only: by plain loops
    for b, plain in enumerate(problem.plain()):
        belief, found = None, []
        for t in range(3):
            rows = [plain.prior.row(t, k) for k in range(len(plain.scores[0]))]
            size = len(rows)
            pi = (
                plain.prior.row(t, None)
                if belief is None
                else [sum(belief[k] * rows[k][i] for k in range(size)) for i in range(size)]
            )
            best = sorted(range(size), key=lambda i: -pi[i])[:2]
            mass = sum(pi[i] for i in best)
            joint = [pi[i] / mass * math.exp(plain.log_f[t][i]) if i in best else 0.0 for i in range(size)]
            found.append(math.log(sum(joint)))
            belief = [x / sum(joint) for x in joint]
        torch.testing.assert_close(KMax(2).log_likelihood(prior, f)[b].tolist(), found)


def test_sampled_prediction_averages_whole_sequences() -> None:
    problem, f = context_problem()
    one = problem.one(0)
    prior, table = one.prior(), one.likelihood()
    law = chain_oracles.law(one.plain()[0].prior)
    path = {z: math.exp(chain_oracles.outputs(z, one.plain()[0].log_f)) for z in law}
    with chosen_paths() as holder:
        for z, w in itertools.product([*law][:4], [*law][-4:]):
            holder[:] = [torch.tensor([z, w])[:, None]]
            found = Sampled(2).log_likelihood(prior, table)
            assert found.sum().item() == pytest.approx(math.log((path[z] + path[w]) / 2))
        holder[:] = [torch.tensor([[[0, 1, 2], [0, 1, 0]], [[2, 2, 1], [1, 0, 0]]])]
        score = Sampled(2).log_likelihood(problem.prior(), f)
        every = Sampled(2).log_probs(problem.prior(), f)
    # what the samples predict of the observed outputs is their score
    torch.testing.assert_close(every.gather(-1, f.targets[..., None])[..., 0], score)


def test_soft_attention_reads_the_chains_own_mean() -> None:
    problem, f = context_problem()
    bound = Soft()(AlignmentProblem(problem.prior(), f))
    torch.testing.assert_close(bound.value, f.mixture(problem.prior().mean()).detach())
    (slope,) = torch.autograd.grad(bound.surrogate.sum(), problem.jumps)
    assert slope.abs().max() > 0


def test_a_recipe_builds_a_module_that_owns_its_jumps() -> None:
    made = build_distribution({"name": "chain", "transitions": "jump", "width": 2})
    assert isinstance(made, ChainDistribution)
    (jumps,) = made.parameters()
    assert jumps.shape == (5,)
    with torch.no_grad():
        jumps.copy_(torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0]))
    matrix = made(torch.zeros(1, 2, 4)).transitions.dense()
    assert matrix.tolist() == [[0, 1, 2, 2], [-1, 0, 1, 2], [-2, -1, 0, 1], [-2, -2, -1, 0]]
    assert not [*build_distribution({"name": "chain", "transitions": "monotone"}).parameters()]
