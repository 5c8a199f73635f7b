"""Estimators: the expectation over all samples is the exact gradient; relaxed ones at fixed noise."""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from latentalign.alignment import (
    AlignmentProblem,
    Elbo,
    Enumerate,
    GumbelSoftmax,
    Hard,
    LeaveOneOut,
    NoBaseline,
    Objective,
    Reinforce,
    RunningMean,
    SoftBaseline,
)
from tests import oracles
from tests.alignment import problems
from tests.alignment.problems import EXACT, Problem, evaluate
from tests.alignment.samples import all_samples, chosen_samples


def warm_running_mean() -> RunningMean:
    """A running mean that has seen a batch already, so that it is not zero."""
    problem = problems.make(11)
    baseline = RunningMean(decay=0.5)
    Hard(Reinforce(baseline=baseline))(
        AlignmentProblem(problem.prior(), problem.likelihood()), generator=torch.Generator().manual_seed(0)
    )
    assert baseline.mean != 0
    return baseline


BASELINES: dict[str, Callable[[], object]] = {
    "none": NoBaseline,
    "soft": SoftBaseline,
    "running-mean": warm_running_mean,
    "leave-one-out": LeaveOneOut,
}
# leave-one-out has no baseline to offer a single sample
CASES = [(name, k) for name in BASELINES for k in (1, 2) if (name, k) != ("leave-one-out", 1)]
OBJECTIVES = {"hard": Hard, "variational": Elbo}


def two_steps(seed: int) -> Problem:
    """Two steps over three positions and a masked one: 9 different samples, or 81 pairs of samples."""
    problem = problems.make(seed, lengths=(4,), steps=2, spread=1.0)
    problem.mask[0, 3] = False
    return problem


def over_all_samples(
    problem: Problem, objective: Objective, k: int
) -> tuple[Tensor, dict[str, Tensor], float]:
    """Expected value and gradient, and the total variance of the gradient in scores, over every sample."""
    sampled = problem.posterior() if objective.needs_posterior else problem.prior()
    mean, gradients, squares = torch.zeros(1, 2, dtype=torch.float64), {}, 0.0
    with chosen_samples() as chosen:
        for positions, chance in all_samples(sampled, k):
            chosen.positions = positions
            bound = evaluate(problem, copy.deepcopy(objective))  # a running mean starts from the same state
            torch.testing.assert_close(bound.surrogate, bound.value)
            mean += chance * bound.value
            for name, slope in problem.gradients(bound.surrogate.sum()).items():
                gradients[name] = gradients.get(name, 0) + chance * slope
                if name.endswith("scores"):
                    squares += chance * float((slope**2).sum())
        # the sampled distribution is the one the weights were taken from, asked once for all its samples
        assert all(count == k for _, count in chosen.asked)
        assert all(torch.equal(asked.probs, sampled.probs) for asked, _ in chosen.asked)
        assert len(chosen.asked) == 3 ** (2 * k)
    names = ("prior_scores", "posterior_scores")
    return mean, gradients, squares - sum(float((gradients[name] ** 2).sum()) for name in names)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("baseline", "k"), CASES)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_reinforce_is_unbiased_over_all_samples(name: str, baseline: str, k: int, seed: int) -> None:
    problem = two_steps(seed)
    objective = OBJECTIVES[name](Reinforce(samples=k, baseline=BASELINES[baseline]()))
    mean, found, _ = over_all_samples(problem, objective, k)

    def oracle(output: problems.Output) -> oracles.Number:
        if name == "hard":
            return oracles.hard(output.prior, output.log_f)
        return oracles.elbo(output.posterior, output.prior, output.log_f)

    torch.testing.assert_close(mean.tolist(), problem.plain().each(oracle), **EXACT)
    problems.assert_same_gradients(found, problem.plain().gradients(oracle))


def hand_derived(output: problems.Output, d: list, sample: list[int], baselines: list[float]) -> list[float]:
    """1/K Σ_k (log f(z_k) − B_k) ∇log d(z_k) in the scores of d."""
    result = [0.0] * len(d)
    for i, b in zip(sample, baselines, strict=True):
        for j, slope in enumerate(oracles.score_gradient(d, i)):
            result[j] += (output.log_f[i] - b) * slope / len(sample)
    return result


@pytest.mark.parametrize("baseline", BASELINES)
def test_reinforce_moves_as_derived_by_hand_with_each_baseline(baseline: str) -> None:
    """Unbiased for any constant, so the constant itself is checked sample by sample."""
    problem = problems.single(1)
    output = problem.plain().output(0, 0)
    part = BASELINES[baseline]()
    before = float(part.mean / part.seen) if isinstance(part, RunningMean) else 0.0
    with chosen_samples() as chosen:
        for positions, _ in all_samples(problem.posterior(), 2):
            chosen.positions = positions
            sample = positions.flatten().tolist()
            logs = [output.log_f[i] for i in sample]
            constants = {
                "none": [0.0, 0.0],
                "soft": [output.soft, output.soft],
                "running-mean": [before, before],
                "leave-one-out": logs[::-1],
            }[baseline]
            estimator = Reinforce(samples=2, baseline=copy.deepcopy(part))
            found = estimator(problem.posterior(), problem.likelihood(), prior=problem.prior())
            gradients = problem.gradients(found.surrogate.sum())
            expected = hand_derived(output, output.posterior, sample, constants)
            torch.testing.assert_close(gradients["posterior_scores"].flatten().tolist(), expected, **EXACT)
            # the soft baseline looks at the prior but is no loss of its own
            assert gradients["prior_scores"].abs().max() == 0
            assert found.value.item() == pytest.approx(sum(logs) / 2)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("seed", range(3))
def test_the_soft_baseline_lowers_the_variance_of_reinforce(name: str, seed: int) -> None:
    """Exact variances over all samples; with twenty possible outputs log f is far from 0, as in practice."""
    problem = problems.make(seed, lengths=(4,), steps=2, vocabulary=20, spread=0.7)
    problem.mask[0, 3] = False
    variances = {
        baseline: over_all_samples(problem, OBJECTIVES[name](Reinforce(baseline=BASELINES[baseline]())), 1)[2]
        for baseline in ("none", "soft")
    }
    assert variances["soft"] < 0.5 * variances["none"]


def test_the_running_mean_follows_past_rewards_only() -> None:
    problem = problems.single(0)
    baseline = RunningMean(decay=0.75)
    f, prior = problem.likelihood(), problem.prior()
    rewards = [torch.full((2, 1, 1), x, dtype=torch.float64) for x in (-4.0, -2.0, 7.0)]
    assert baseline(rewards[0], prior, f).item() == 0
    assert baseline(rewards[1], prior, f).item() == pytest.approx(-4.0)
    expected = (0.75 * 0.25 * -4.0 + 0.25 * -2.0) / (0.75 * 0.25 + 0.25)
    assert baseline(rewards[2], prior, f).item() == pytest.approx(expected)
    again = RunningMean(decay=0.75)
    again.load_state_dict(baseline.state_dict())
    assert again(rewards[0], prior, f).item() == pytest.approx(baseline(rewards[0], prior, f).item())


def test_leave_one_out_takes_the_mean_of_the_others() -> None:
    rewards = torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64).reshape(3, 1, 1)
    problem = problems.single(0)
    found = LeaveOneOut()(rewards, problem.prior(), problem.likelihood())
    assert found.flatten().tolist() == pytest.approx([4.0, 3.5, 1.5])


# ------------------------------------------------------------------------------------------ enumeration


@pytest.mark.parametrize("seed", range(3))
def test_enumeration_passes_gradcheck(seed: int) -> None:
    problem = problems.make(seed, lengths=(3, 2), steps=1)

    def value(scores: Tensor, values: Tensor) -> Tensor:
        moved = Problem(**{**vars(problem), "posterior_scores": scores, "values": values})
        return Enumerate()(moved.posterior(), moved.likelihood(), prior=moved.prior()).surrogate

    assert torch.autograd.gradcheck(value, (problem.posterior_scores, problem.values))


# ------------------------------------------------------------------------------------------ Gumbel-softmax


def gumbel_bound(problem: Problem, temperature: float, *leaves: Tensor, samples: int = 2) -> Tensor:
    moved = Problem(**{**vars(problem), **dict(zip(problems.LEAVES, leaves, strict=True))})
    objective = Elbo(GumbelSoftmax(temperature=temperature, samples=samples))
    return evaluate(moved, objective, generator=torch.Generator().manual_seed(3)).surrogate


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_gumbel_passes_gradcheck_at_fixed_noise(temperature: float) -> None:
    problem = problems.make(0)
    leaves = tuple(problem.leaves().values())
    assert torch.autograd.gradcheck(lambda *moved: gumbel_bound(problem, temperature, *moved), leaves)


def test_gumbel_is_log_f_at_the_relaxed_sample_minus_the_categorical_kl() -> None:
    problem = problems.make(2)
    plain = problem.plain()
    bound = evaluate(
        problem, Elbo(GumbelSoftmax(temperature=0.7, samples=3)), generator=torch.Generator().manual_seed(5)
    )
    # the same generator gives the same relaxed samples; their law is checked with the distributions
    z = problem.posterior().relaxed_sample(3, 0.7, torch.Generator().manual_seed(5)).tolist()
    for b in range(2):
        for t in range(2):
            arguments = plain.values[b], plain.queries[b][t], plain.weight, plain.targets[b][t]
            logs = [oracles.log_likelihood(*arguments, z[k][b][t]) for k in range(3)]
            output = plain.output(b, t)
            kl = oracles.kl(output.posterior, output.prior)
            assert bound.value[b, t].item() == pytest.approx(sum(logs) / 3 - kl)
            assert bound.kl[b, t].item() == pytest.approx(kl)


def test_gumbel_approaches_the_elbo_as_the_temperature_falls() -> None:
    """20,000 samples of a nearly discrete z; 5 standard errors, so one seed in 1.7 million would fail."""
    problem = problems.single(3)
    draws = 20_000
    estimator = GumbelSoftmax(temperature=1e-3, samples=draws)
    found = estimator(
        problem.posterior(),
        problem.likelihood(),
        prior=problem.prior(),
        generator=torch.Generator().manual_seed(0),
    )
    output = problem.plain().output(0, 0)
    mean = oracles.expected(output.posterior, output.log_f)
    second = oracles.expected(output.posterior, [x * x for x in output.log_f])
    error = math.sqrt((second - mean**2) / draws)
    assert abs(found.value.item() - mean) < 5 * error + 2e-3  # 2e-3: what the temperature leaves


def test_relaxed_samples_are_averaged() -> None:
    problem = problems.make(0)
    estimator = GumbelSoftmax(temperature=0.5, samples=3)

    def generator() -> torch.Generator:
        return torch.Generator().manual_seed(1)

    found = estimator(
        problem.posterior(), problem.likelihood(), prior=problem.prior(), generator=generator()
    ).value
    drawn = problem.posterior().relaxed_sample(3, 0.5, generator())
    each = [problem.likelihood().mixture(z) for z in drawn]
    torch.testing.assert_close(found, (each[0] + each[1] + each[2]).detach() / 3)
