"""Properties that hold for every problem: padding, batching, order, dtype, seeds and extreme scores."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import pad

from latentalign.alignment import (
    AlignmentProblem,
    Categorical,
    Elbo,
    Exact,
    Hard,
    KMax,
    Marginal,
    Normal,
    Pathwise,
    SoftContext,
    StochasticVI,
)
from tests.alignment.choices import (
    DETERMINISTIC,
    EVERY,
    RELAXED,
    changed,
    objective_of,
    seeded,
    small_problems,
)
from tests.alignment.problems import Problem, evaluate

MANY = settings(max_examples=12)  # for each of many objectives


def padded(problem: Problem, extra: int, filling: float) -> Problem:
    return changed(
        problem,
        prior_scores=pad(problem.prior_scores, (0, extra), value=filling),
        posterior_scores=pad(problem.posterior_scores, (0, extra), value=-filling),
        values=pad(problem.values, (0, 0, 0, extra), value=filling),
        mask=pad(problem.mask, (0, extra)),
    )


# ------------------------------------------------------------------------------------------ padding, batches


@pytest.mark.parametrize("name", DETERMINISTIC)
@MANY
@given(problem=small_problems, extra=st.integers(1, 3), filling=st.sampled_from([0.0, 7.0, -50.0]))
def test_padding_is_truncation(name: str, problem: Problem, extra: int, filling: float) -> None:
    longer, size = padded(problem, extra, filling), problem.mask.shape[1]
    short, long = evaluate(problem, DETERMINISTIC[name]), evaluate(longer, DETERMINISTIC[name])
    torch.testing.assert_close(long.value, short.value)
    torch.testing.assert_close(long.kl, short.kl)
    for key, value in short.diagnostics.items():
        torch.testing.assert_close(long.diagnostics[key], value)
    found, expected = longer.gradients(long.surrogate.sum()), problem.gradients(short.surrogate.sum())
    for key in ("prior_scores", "posterior_scores"):
        torch.testing.assert_close(found[key][..., :size], expected[key])
        assert (found[key][..., size:] == 0).all()
    torch.testing.assert_close(found["values"][:, :size], expected["values"])
    assert (found["values"][:, size:] == 0).all()
    torch.testing.assert_close(found["weight"], expected["weight"])


@pytest.mark.parametrize("family", RELAXED)
@given(problem=small_problems, extra=st.integers(1, 3))
def test_padding_is_truncation_for_relaxed_distributions(family: str, problem: Problem, extra: int) -> None:
    longer = padded(problem, extra, 3.0)
    build, size = RELAXED[family], problem.mask.shape[1]
    short = [build(scores, problem.mask) for scores in (problem.prior_scores, problem.posterior_scores)]
    long = [build(scores, longer.mask) for scores in (longer.prior_scores, longer.posterior_scores)]
    torch.testing.assert_close(long[1].kl(long[0]), short[1].kl(short[0]))
    torch.testing.assert_close(long[0].mean()[..., :size], short[0].mean())
    torch.testing.assert_close(long[0].alignment_entropy(), short[0].alignment_entropy())
    z = short[0].rsample(2, seeded()).detach()
    torch.testing.assert_close(long[0].log_prob(pad(z, (0, extra))), short[0].log_prob(z))


@pytest.mark.parametrize("predictor", [Exact(), KMax(2), SoftContext()], ids=repr)
@given(problem=small_problems, extra=st.integers(1, 3))
def test_padding_does_not_change_predictions(predictor, problem: Problem, extra: int) -> None:
    longer = padded(problem, extra, 7.0)
    torch.testing.assert_close(
        predictor.log_likelihood(longer.prior(), longer.likelihood()),
        predictor.log_likelihood(problem.prior(), problem.likelihood()),
    )
    torch.testing.assert_close(
        predictor.log_probs(longer.prior(), longer.likelihood()),
        predictor.log_probs(problem.prior(), problem.likelihood()),
    )


@pytest.mark.parametrize("name", DETERMINISTIC)
@MANY
@given(problem=small_problems)
def test_batched_is_one_by_one(name: str, problem: Problem) -> None:
    together = evaluate(problem, DETERMINISTIC[name])
    gradients = problem.gradients(together.surrogate.sum())
    weight = torch.zeros_like(problem.weight)
    for b in range(problem.mask.shape[0]):
        rows = {name: leaf[b : b + 1] for name, leaf in vars(problem).items() if name != "weight"}
        alone = changed(problem, **rows)
        bound = evaluate(alone, DETERMINISTIC[name])
        torch.testing.assert_close(bound.value[0], together.value[b])
        slopes = alone.gradients(bound.surrogate.sum())
        torch.testing.assert_close(slopes["prior_scores"][0], gradients["prior_scores"][b])
        torch.testing.assert_close(slopes["values"][0], gradients["values"][b])
        weight += slopes["weight"]
    torch.testing.assert_close(weight, gradients["weight"])


@pytest.mark.parametrize("name", DETERMINISTIC)
@MANY
@given(problem=small_problems, data=st.data())
def test_permuting_the_memory_permutes_the_alignment(name: str, problem: Problem, data) -> None:
    order = torch.tensor(data.draw(st.permutations(range(problem.mask.shape[1]))))
    moved = changed(
        problem,
        prior_scores=problem.prior_scores[..., order],
        posterior_scores=problem.posterior_scores[..., order],
        values=problem.values[:, order],
        mask=problem.mask[:, order],
    )
    first, second = evaluate(problem, DETERMINISTIC[name]), evaluate(moved, DETERMINISTIC[name])
    torch.testing.assert_close(second.value, first.value)
    torch.testing.assert_close(moved.prior().probs, problem.prior().probs[..., order])
    before = problem.gradients(first.surrogate.sum())
    after = moved.gradients(second.surrogate.sum())
    torch.testing.assert_close(after["prior_scores"], before["prior_scores"][..., order])
    torch.testing.assert_close(after["values"], before["values"][:, order])


# ------------------------------------------------------------------------------------------ bounds and masks


@given(problem=small_problems)
def test_bounds_are_ordered(problem: Problem) -> None:
    exact = evaluate(problem, Marginal()).value + 1e-9
    for objective in (Hard(), Elbo(), StochasticVI(steps=2, learning_rate=0.3), Marginal(prune=0.1)):
        assert (evaluate(problem, objective).value <= exact).all()


@given(problem=small_problems)
def test_divergences_are_not_negative(problem: Problem) -> None:
    scores = problem.prior_scores, problem.posterior_scores
    for build in (Categorical.from_scores, *RELAXED.values()):
        p, q = (build(score, problem.mask) for score in scores)
        assert (q.kl(p) >= -1e-10).all()
        torch.testing.assert_close(p.kl(p), torch.zeros_like(p.kl(p)), atol=1e-9, rtol=0)
    p, q = (Normal(score, score.exp()) for score in scores)
    assert (q.kl(p) >= -1e-10).all()


@pytest.mark.parametrize("name", EVERY)
@MANY
@given(problem=small_problems, data=st.data())
def test_masked_positions_get_exactly_no_probability_and_no_gradient(
    name: str, problem: Problem, data
) -> None:
    size = problem.mask.shape[1]
    flags = st.lists(st.booleans(), min_size=size, max_size=size).filter(any)
    mask = torch.tensor([data.draw(flags) for _ in range(problem.mask.shape[0])])
    # what stands at masked scores, even NaN, must not be seen
    hidden = ~mask[:, None].expand_as(problem.prior_scores)
    problem = changed(problem, mask=mask, prior_scores=problem.prior_scores.masked_fill(hidden, math.nan))
    assert (problem.prior().probs[hidden] == 0).all()
    bound = evaluate(problem, objective_of(name), generator=seeded())
    assert torch.isfinite(bound.value).all()
    gradients = problem.gradients(bound.surrogate.sum())
    assert all(torch.isfinite(slope).all() for slope in gradients.values())
    assert (gradients["prior_scores"][hidden] == 0).all()
    assert (gradients["posterior_scores"][hidden] == 0).all()
    assert (gradients["values"][~mask] == 0).all()


@pytest.mark.parametrize("family", RELAXED)
@given(problem=small_problems)
def test_relaxed_samples_give_masked_positions_nothing(family: str, problem: Problem) -> None:
    build, hidden = RELAXED[family], ~problem.mask[:, None].expand_as(problem.prior_scores)
    p, q = (build(scores, problem.mask) for scores in (problem.prior_scores, problem.posterior_scores))
    z = q.rsample(3, seeded())
    assert (z[hidden.expand_as(z)] == 0).all()
    bound = Elbo(Pathwise())(AlignmentProblem(p, problem.likelihood(), posterior=q), generator=seeded())
    gradients = problem.gradients(bound.surrogate.sum())
    assert (gradients["prior_scores"][hidden] == 0).all()
    assert (gradients["posterior_scores"][hidden] == 0).all()
