"""Every objective, estimator, predictor and latent on another device and under autocast, in bounded memory."""

from collections.abc import Callable
from dataclasses import fields

import pytest
import torch
from torch import Tensor, nn

from latentalign.alignment import (
    AlignmentProblem,
    Bound,
    Categorical,
    ContextLikelihood,
    Elbo,
    Exact,
    GaussianContext,
    Hard,
    KMax,
    Latent,
    LatentAttention,
    Marginal,
    Normal,
    Pathwise,
    Sampled,
    Soft,
    SoftContext,
    SoftmaxHead,
    VectorLikelihood,
    Wake,
    exact_posterior,
    external_posterior,
    log_marginal,
    proposition1,
    tightness,
)
from latentalign.alignment.likelihoods import softmax_head as blocks_module
from tests.alignment import problems
from tests.alignment.choices import EVERY, RELAXED, objective_of
from tests.alignment.problems import Problem
from tests.devices import Largest, at_home, elsewhere

VOCABULARY, FEATURES = 3, 2


def on(device: torch.device | str, *, dtype: torch.dtype = torch.float64) -> Problem:
    """The same problem on a device."""
    made = problems.make(0, lengths=(5, 3), steps=3, dtype=dtype)
    moved = {}
    for field in fields(made):
        tensor = getattr(made, field.name)
        moved[field.name] = tensor.detach().to(device).requires_grad_(tensor.requires_grad)
    return Problem(**moved)


def plain(problem: Problem, kind: type[ContextLikelihood] = ContextLikelihood) -> ContextLikelihood:
    return kind(problem.head, problem.values, problem.queries, problem.targets)


def chunked(problem: Problem, kind: type[ContextLikelihood] = ContextLikelihood) -> ContextLikelihood:
    return kind(problem.head, problem.values, problem.queries, problem.targets, max_elements=8 * VOCABULARY)


def blockwise(problem: Problem, kind: type[ContextLikelihood] = ContextLikelihood) -> ContextLikelihood:
    output = nn.Linear(FEATURES, VOCABULARY, bias=False, device=problem.weight.device)
    output.weight = nn.Parameter(problem.weight)  # shares the leaf's memory; its gradient is not compared
    return kind(SoftmaxHead(output), problem.values, problem.queries, problem.targets)


HEADS: dict[str, Callable[..., ContextLikelihood]] = {
    "plain": plain,
    "chunked": chunked,
    "blockwise": blockwise,
}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks_module, "BLOCK_ELEMENTS", 1)
    monkeypatch.setattr(blocks_module, "KEPT_ELEMENTS", 40 * (VOCABULARY + FEATURES))


def bound_of(name: str, problem: Problem, head: str, generator: torch.Generator) -> Bound:
    objective = objective_of(name)
    for part in objective.modules():
        part.to(problem.values.device)
    posterior = problem.posterior() if objective.needs_posterior else None
    weights = torch.tensor([[True, True, True], [True, True, False]]).to(problem.values.device)
    f = HEADS[head](problem)
    return objective(AlignmentProblem(problem.prior(), f, weights, posterior), generator=generator)


def parts(bound: Bound) -> list[Tensor]:
    return [bound.value, bound.surrogate, bound.log_likelihood, bound.kl, *bound.diagnostics.values()]


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(at_home(a), b.detach())


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", EVERY)
def test_objectives_and_estimators(name: str, head: str) -> None:
    here = on("cpu")
    expected = bound_of(name, here, head, torch.Generator().manual_seed(0))
    slopes = here.gradients(expected.surrogate.sum())
    with elsewhere() as device:
        there = on(device)
        found = bound_of(name, there, head, torch.Generator(device=device).manual_seed(0))
        assert {part.device for part in parts(found)} == {device}
        found_slopes = there.gradients(found.surrogate.sum())
    assert_same(parts(found), parts(expected))
    for leaf in ("prior_scores", "posterior_scores", "values", "queries"):
        torch.testing.assert_close(at_home(found_slopes[leaf]), slopes[leaf])


# ------------------------------------------------------------------------------------- continuous latents


def relaxed(problem: Problem, family: str) -> tuple[Latent, Latent, type[ContextLikelihood]]:
    """Prior, posterior and the kind of likelihood that takes them."""
    if family in RELAXED:
        scores = problem.prior_scores, problem.posterior_scores
        prior, posterior = (RELAXED[family](each, problem.mask) for each in scores)
        return prior, posterior, ContextLikelihood
    scale = problem.queries.exp()
    if family == "gaussian":
        return Normal(problem.queries, scale), Normal(2 * problem.queries, scale), VectorLikelihood
    attention, other = problem.prior(), problem.posterior()
    return (
        GaussianContext.around(attention, problem.values, scale),
        GaussianContext.around(other, problem.values, scale),
        VectorLikelihood,
    )


FAMILIES = [*RELAXED, "gaussian", "gaussian-context"]
CONTINUOUS = {"soft": Soft(), "variational": Elbo(Pathwise(samples=2)), "hard": Hard(Pathwise())}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("family", FAMILIES)
def test_continuous_latents(family: str, name: str, head: str) -> None:
    def run(device: torch.device | str) -> list[Tensor]:
        problem, objective = on(device), CONTINUOUS[name]
        prior, posterior, kind = relaxed(problem, family)
        f = HEADS[head](problem, kind)
        given = AlignmentProblem(prior, f, posterior=posterior if objective.needs_posterior else None)
        bound = objective(given, generator=torch.Generator(device=device).manual_seed(0))
        slopes = problem.gradients(bound.surrogate.sum())
        del slopes["weight"]
        scores = Sampled(2).log_likelihood(prior, f, generator=torch.Generator(device=device).manual_seed(0))
        predicted = [scores, Sampled(2).log_probs(prior, f), SoftContext().log_probs(prior, f)]
        return [*parts(bound), *slopes.values(), scores, *(part.sum(-1) * 0 for part in predicted)]

    expected = run("cpu")
    with elsewhere() as device:
        found = run(device)
        assert {part.device for part in found} == {device}
    assert_same(found, expected)


# ------------------------------------------------------------------------------------- predictors, metrics, layer


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("normalizer", ["softmax", "sparsemax", "entmax15"])
@pytest.mark.parametrize("predictor", [Exact(), KMax(2), Sampled(3), SoftContext()], ids=repr)
def test_predictors(predictor, normalizer: str, head: str) -> None:
    def run(device: torch.device | str) -> list[Tensor]:
        problem = on(device)
        prior, f = problem.prior(normalizer), HEADS[head](problem)
        score = predictor.log_likelihood(prior, f, generator=torch.Generator(device=device).manual_seed(0))
        log_probs = predictor.log_probs(prior, f, generator=torch.Generator(device=device).manual_seed(0))
        slopes = problem.gradients(score.sum() + log_probs.sum())
        return [score, log_probs, slopes["prior_scores"], slopes["values"]]

    expected = run("cpu")
    with elsewhere() as device:
        found = run(device)
    assert_same(found, expected)


def test_metrics_and_given_posteriors() -> None:
    def run(device: torch.device | str) -> list[Tensor]:
        problem = on(device)
        prior, f = problem.prior(), plain(problem)
        bound = Elbo()(AlignmentProblem(prior, f, posterior=problem.posterior()))
        gap = proposition1(prior, f, grid=2)
        links = problem.posterior().probs.detach()
        return [
            log_marginal(prior, f),
            exact_posterior(prior, f).probs,
            tightness(bound, prior, f),
            gap.gap,
            gap.sharp_bound,
            external_posterior(links, problem.mask, smoothing=0.1).probs,
            Categorical.from_probs(links, problem.mask).probs,
            Wake()(AlignmentProblem(prior, f, posterior=problem.posterior())).value,
        ]

    expected = run("cpu")
    with elsewhere() as device:
        found = run(device)
    assert_same(found, expected)


@pytest.mark.parametrize("distribution", ["categorical", "dirichlet", "logistic-normal"])
@pytest.mark.parametrize("score", ["additive", "dot", "general"])
def test_the_layer(score: str, distribution: str) -> None:
    def run(device: torch.device | str) -> list[Tensor]:
        torch.manual_seed(0)
        attend = LatentAttention(4, 4, objective="hard", score=score, distribution=distribution).to(device)
        output = nn.Linear(4, 6).to(device)
        queries, memory = torch.randn(2, 3, 4).to(device), torch.randn(2, 5, 4).to(device)
        targets = torch.tensor([[0, 5, -100], [1, 2, 3]]).to(device)
        mask = (torch.arange(5) < torch.tensor([[5], [3]])).to(device)

        def head(context: Tensor, query: Tensor) -> Tensor:
            return output(torch.tanh(context + query))

        def call(**options):
            generator = torch.Generator(device=device).manual_seed(0)
            return attend(queries, memory, head, mask=mask, generator=generator, **options)

        trained = call(targets=targets)
        trained.loss.backward()
        attend.eval()
        evaluated, blind = call(targets=targets), call()
        assert all(parameter.grad is not None for parameter in attend.parameters())
        return [trained.loss, output.weight.grad, evaluated.loss, evaluated.log_probs, blind.log_probs]

    expected = run("cpu")
    with elsewhere() as device:
        found = run(device)
    assert_same(found, expected)


# ------------------------------------------------------------------------------------- autocast


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", EVERY)
def test_objectives_under_autocast(name: str, head: str) -> None:
    """Bounds are float32 and those without it but for the digits of bfloat16; gradients are float32 and finite."""

    def run(enabled: bool) -> tuple[Bound, dict[str, Tensor]]:
        problem = on("cpu", dtype=torch.float32)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            bound = bound_of(name, problem, head, torch.Generator().manual_seed(0))
        return bound, problem.gradients(bound.surrogate.sum())

    (found, slopes), (expected, _) = run(True), run(False)
    assert {part.dtype for part in parts(found)} == {torch.float32}
    torch.testing.assert_close(found.value, expected.value, rtol=0.05, atol=0.05)
    for slope in slopes.values():
        assert slope.dtype == torch.float32
        assert torch.isfinite(slope).all()


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("family", FAMILIES)
def test_continuous_latents_under_autocast(family: str, name: str, head: str) -> None:
    problem, objective = on("cpu", dtype=torch.float32), CONTINUOUS[name]
    with torch.autocast("cpu", torch.bfloat16):
        prior, posterior, kind = relaxed(problem, family)
        f = HEADS[head](problem, kind)
        given = AlignmentProblem(prior, f, posterior=posterior if objective.needs_posterior else None)
        bound = objective(given)
        predicted = [Sampled(2).log_likelihood(prior, f), Sampled(2).log_probs(prior, f)]
    for part in (*parts(bound), *predicted):
        assert part.dtype == torch.float32
        assert torch.isfinite(part).all()
    assert all(torch.isfinite(slope).all() for slope in problem.gradients(bound.surrogate.sum()).values())


@pytest.mark.parametrize("predictor", [Exact(), KMax(2), Sampled(3), SoftContext()], ids=repr)
@pytest.mark.parametrize("head", HEADS)
def test_predictors_under_autocast(predictor, head: str) -> None:
    problem = on("cpu", dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        prior, f = problem.prior(), HEADS[head](problem)
        found = [predictor.log_likelihood(prior, f), predictor.log_probs(prior, f)]
    for part in found:
        assert part.dtype == torch.float32
        assert torch.isfinite(part).all()
    torch.testing.assert_close(found[1].exp().sum(-1), torch.ones(2, 3), rtol=0.02, atol=0.02)


# ------------------------------------------------------------------------------------- bounded memory

WIDE = 64  # words
AT_ONCE = 8 * WIDE  # output numbers that may exist at a time


def largest_tensor(head: str, place: str, monkeypatch: pytest.MonkeyPatch, request: Callable) -> Largest:
    """What is the largest tensor of a forward and a backward pass over 2 × 6 × 20 pairs and 64 words?"""
    monkeypatch.setattr(blocks_module, "BLOCK_ELEMENTS", 32 * WIDE)  # blocks have 32 rows at least
    monkeypatch.setattr(blocks_module, "KEPT_ELEMENTS", 0)
    torch.manual_seed(0)
    with elsewhere() as elsewhere_device:
        device = elsewhere_device if place == "elsewhere" else torch.device("cpu")
        output = nn.Linear(3, WIDE).to(device)
        values = torch.randn(2, 20, 3).to(device).requires_grad_()
        queries = torch.randn(2, 6, 3).to(device)
        targets = torch.randint(WIDE, (2, 6)).to(device)
        chosen = SoftmaxHead(output) if head == "blockwise" else lambda x, q: output(torch.tanh(x + q))
        f = ContextLikelihood(chosen, values, queries, targets, width=WIDE, max_elements=AT_ONCE)
        prior = Categorical.from_scores(torch.randn(2, 6, 20).to(device))
        with torch.autocast("cpu", torch.bfloat16, enabled=place == "autocast"), Largest() as largest:
            value = request(prior, f)
            if value.requires_grad:
                value.sum().backward()
    return largest


REQUESTS = {
    "marginal": lambda prior, f: Marginal()(AlignmentProblem(prior, f)).surrogate,
    "pruned": lambda prior, f: Marginal(prune=0.01)(AlignmentProblem(prior, f)).surrogate,
    "mixtures": lambda prior, f: f.mixture(prior.probs.expand(20, 2, 6, 20)),
    "exact": lambda prior, f: Exact().log_likelihood(prior, f),
}


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("place", ["cpu", "elsewhere", "autocast"])
@pytest.mark.parametrize("head", ["chunked", "blockwise"])
def test_memory_is_bounded_everywhere(
    head: str, place: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """240 pairs × 64 words never exist at once: chunks of 8 pairs, blocks of 32, and tables without words."""
    largest = largest_tensor(head, place, monkeypatch, REQUESTS[name])
    pairs = 2 * 6 * 20
    limit = {"chunked": AT_ONCE, "blockwise": 32 * WIDE}[head]
    assert largest.elements <= max(limit, 20 * pairs if name == "mixtures" else 3 * pairs), largest.made_by
    assert largest.elements < pairs * WIDE
    assert largest.elements >= 8 * WIDE  # the chunks were seen


@pytest.mark.parametrize("place", ["cpu", "elsewhere", "autocast"])
def test_predictions_are_bounded_everywhere(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    largest = largest_tensor(
        "blockwise", place, monkeypatch, lambda prior, f: Exact().log_probs(prior, f).detach()
    )
    assert largest.elements <= 12 * WIDE, largest.made_by  # what is returned: 12 outputs × 64 words
