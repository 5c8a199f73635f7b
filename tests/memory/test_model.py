"""Memory networks as alignment problems: shapes, properties, and learning in a bare loop."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from latentalign.alignment import AlignmentProblem, Categorical, Elbo, Exact, Marginal, Soft, SoftContext
from latentalign.alignment.registry import build_objective
from latentalign.errors import UserError
from latentalign.memory.config import MemoryModelConfig
from latentalign.memory.dataset import MemoryBatch, StoryDataset
from latentalign.memory.model import MemoryModel
from latentalign.memory.reading import hop_targets
from latentalign.memory.vocabulary import UNKNOWN_ANSWER, Vocabulary
from latentalign.memory.worlds import WorldsConfig, tell_stories

STORIES = tell_stories(WorldsConfig(stories=140), seed=2)
VOCABULARY = Vocabulary.collect(STORIES)
DATA = StoryDataset(STORIES, VOCABULARY, memory=20, batch_size=32, detailed=True)
KINDS: dict[str, dict[str, Any]] = {
    "adjacent": {},
    "layer-wise": {"tying": "layer-wise"},
    "path": {"latent": "path", "hops": 2},
    "layer-wise path": {"latent": "path", "hops": 2, "tying": "layer-wise"},
    "supervised": {"kind": "supervised", "facts": "likelihood", "posterior": "facts"},
    "dynamic": {"kind": "dynamic"},
    "one hop, bag of words": {"hops": 1, "position_encoding": False, "temporal_encoding": False},
}


def build(needs_posterior: bool = False, **options: Any) -> MemoryModel:
    torch.manual_seed(0)
    config = MemoryModelConfig(**{"size": 12, "inference_size": 8, **options})
    return MemoryModel(config, VOCABULARY, memory=20, needs_posterior=needs_posterior)


def loss_of(model: MemoryModel, batch: MemoryBatch, objective: Any) -> torch.Tensor:
    problem = model.problem(batch, with_posterior=objective.needs_posterior)
    bound = objective(problem)
    penalty = 0.0 if problem.penalty is None else problem.penalty
    return (penalty - bound.surrogate).mean()


@pytest.mark.parametrize("kind", KINDS)
def test_one_by_one_is_the_same_as_in_a_batch(kind: str) -> None:
    model = build(needs_posterior=True, **KINDS[kind]).eval()
    numbers = [3, 40, 90]
    together = model.problem(DATA.collate(numbers), with_posterior=True)
    log_probs = Exact().log_probs(together.prior, together.likelihood)
    soft = Soft()(AlignmentProblem(together.prior, together.likelihood)).value
    for row, number in enumerate(numbers):
        alone = model.problem(DATA.collate([number]), with_posterior=True)
        torch.testing.assert_close(Exact().log_probs(alone.prior, alone.likelihood)[0], log_probs[row])
        torch.testing.assert_close(
            Soft()(AlignmentProblem(alone.prior, alone.likelihood)).value[0], soft[row]
        )
        torch.testing.assert_close(alone.posterior.entropy()[0], together.posterior.entropy()[row])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "objective",
    [
        "soft",
        "marginal",
        "hard",
        "variational",
        "wake",
        "rws",
        "vimco",
        {"name": "svi", "steps": 2},
        "em",
        {"name": "variational", "estimator": "reinforce"},
        {"name": "variational", "estimator": "gumbel"},
    ],
    ids=str,
)
def test_every_objective_moves_the_model(kind: str, objective: Any) -> None:
    chosen = build_objective(objective)
    model = build(needs_posterior=chosen.needs_posterior, **KINDS[kind])
    loss = loss_of(model, DATA.collate([1, 2, 3]), chosen)
    loss.backward()
    assert torch.isfinite(loss)
    assert sum(float(p.grad.abs().sum()) for p in model.theta() if p.grad is not None) > 0
    if model.phi() and chosen.needs_posterior:
        assert sum(float(p.grad.abs().sum()) for p in model.phi() if p.grad is not None) > 0
    assert not {id(p) for p in model.theta()} & {id(p) for p in model.phi()}
    assert len(model.theta()) + len(model.phi()) == len(list(model.parameters()))


@pytest.mark.parametrize("kind", ["adjacent", "path", "dynamic"])
def test_relaxed_and_bounded(kind: str) -> None:
    model = build(needs_posterior=True, **KINDS[kind]).eval()
    problem = model.problem(DATA.collate(list(range(8))), with_posterior=True)
    marginal = Marginal()(AlignmentProblem(problem.prior, problem.likelihood)).value
    elbo = Elbo()(problem).value
    assert bool((elbo <= marginal + 1e-5).all())


def test_the_inference_network_leaves_word_vectors_alone() -> None:
    model = build(needs_posterior=True)
    problem = model.problem(DATA.collate([1, 2, 3]), with_posterior=True)
    problem.posterior.entropy().sum().backward()
    assert all(parameter.grad is None for parameter in model.theta())
    assert model.inference.facts.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("latent", [{}, {"latent": "path", "hops": 2}], ids=["last hop", "path"])
def test_a_posterior_from_the_prior_is_the_prior_times_what_the_network_says(latent: dict[str, Any]) -> None:
    batch = DATA.collate([3, 40, 90])
    apart, joined = (
        build(needs_posterior=True, inference_from_prior=yes, **latent).eval() for yes in (False, True)
    )
    problem, other = (model.problem(batch, with_posterior=True) for model in (joined, apart))
    product = problem.prior.probs * other.posterior.probs
    torch.testing.assert_close(problem.posterior.probs, product / product.sum(dim=-1, keepdim=True))
    problem.posterior.entropy().sum().backward()
    assert all(parameter.grad is None for parameter in joined.theta())  # nothing is learnt through the prior


def test_the_posterior_sees_the_answer_and_the_prior_does_not() -> None:
    from dataclasses import replace

    model = build(needs_posterior=True).eval()
    batch = DATA.collate([1, 2, 3])
    other = replace(batch, answers=batch.answers % 3 + 1)
    first, second = model.problem(batch, with_posterior=True), model.problem(other, with_posterior=True)
    assert torch.equal(first.prior.probs, second.prior.probs)
    assert not torch.allclose(first.posterior.probs, second.posterior.probs)


def test_linear_start_ends_and_is_remembered() -> None:
    torch.manual_seed(0)
    config = MemoryModelConfig(size=12, linear_start=2.0)
    model = MemoryModel(config, VOCABULARY, memory=20, batches=3)
    batch = DATA.collate([1, 2, 3])
    modes = []
    for _ in range(8):
        model.problem(batch)
        modes.append(model.network.is_linear)
    assert modes == [True] * 6 + [False] * 2
    again = MemoryModel(config, VOCABULARY, memory=20, batches=3)
    assert again.network.is_linear
    again.load_state_dict(model.state_dict())
    assert not again.network.is_linear


def test_a_linear_network_has_no_softmax() -> None:
    """Twice the question's vector and half the answers' give the same logits only where u enters linearly."""
    model = build(linear_start=1.0, hops=1, temporal_encoding=False).eval()
    assert model.network.is_linear
    batch = DATA.collate([5])
    problem = model.problem(batch)
    facts = model.network.encoder(batch.sentences)
    keys, values, question = facts[:-1, 0], facts[:-1, 1], facts[-1, 0]
    state = question + (keys @ question) @ values
    answers = model.network.answers(model.network.encoder.table[:, 12:])
    torch.testing.assert_close(
        SoftContext().log_probs(problem.prior, problem.likelihood)[0, 0],
        (state @ answers.t()).log_softmax(-1),
    )
    torch.testing.assert_close(  # whatever the alignment: exact enumeration says the same
        Exact().log_probs(problem.prior, problem.likelihood),
        SoftContext().log_probs(problem.prior, problem.likelihood),
    )


def test_soft_end_to_end_is_the_published_network() -> None:
    model = build(hops=2, temporal_encoding=False).eval()
    batch = DATA.collate([7])
    facts = model.network.encoder(batch.sentences)
    state = facts[-1, 0]
    for hop in range(2):
        weights = (facts[:-1, hop] @ state).softmax(-1)
        state = state + weights @ facts[:-1, hop + 1]
    answers = model.network.answers(model.network.encoder.table[:, 24:])
    problem = model.problem(batch)
    torch.testing.assert_close(
        SoftContext().log_probs(problem.prior, problem.likelihood)[0, 0],
        (state @ answers.t()).log_softmax(-1),
    )


def test_observed_facts_give_the_joint_likelihood() -> None:
    """With a one-hot q the bound is log f(z*) + log p(z*)."""
    for options in ({"posterior": "facts"}, {"posterior": "facts", "latent": "path", "hops": 2}):
        model = build(needs_posterior=True, **options).eval()
        assert model.phi() == []
        batch = DATA.collate([5, 6, 7, 8])
        problem = model.problem(batch, with_posterior=True)
        slots = batch.mask.shape[1]
        told = hop_targets(batch.support, model.config.hops)
        value = told[:, -1] if model.config.latent == "last" else told[:, 0] * slots + told[:, 1]
        bound = Elbo()(problem)
        joint = problem.likelihood.at(value[None, :, None]) + problem.prior.log_prob(value[None, :, None])
        torch.testing.assert_close(bound.value, joint[0])


def test_without_named_facts_the_posterior_is_the_prior() -> None:
    from dataclasses import replace

    model = build(needs_posterior=True, posterior="facts").eval()
    batch = DATA.collate([5, 6])
    nothing = replace(batch, support=torch.full_like(batch.support, -1))
    problem = model.problem(nothing, with_posterior=True)
    torch.testing.assert_close(problem.posterior.probs, problem.prior.probs)


def test_supervised_hops_follow_the_file_only_while_training() -> None:
    model = build(**KINDS["supervised"], random_noise=0.0)
    batch = DATA.collate([n for n, e in enumerate(DATA.examples) if len(e.support) == 2][:16])
    taught = model.problem(batch).reading
    free = model.eval().problem(batch).reading
    torch.testing.assert_close(taught.earlier[0], free.earlier[0])
    followed = free.earlier[0].masked_fill(~batch.mask, -torch.inf).argmax(-1) == batch.support[:, 0]
    same = torch.isclose(taught.earlier[1], free.earlier[1]).all(dim=-1)
    assert not bool(followed.all())
    assert torch.equal(same, followed)


def test_margin_ranking_trains_scores_and_the_bound_does_not() -> None:
    model = build(kind="supervised", facts="margin", posterior="facts", margin=0.1)
    problem = model.problem(DATA.collate([5, 6, 7]), with_posterior=True)
    assert isinstance(problem.prior, Categorical)
    assert not problem.prior.log_probs.requires_grad
    assert problem.penalty.shape == (3, 1)
    problem.penalty.sum().backward()
    assert all(float(score.query.weight.grad.abs().sum()) > 0 for score in model.network.scores)


def test_too_many_paths_are_refused() -> None:
    model = build(latent="path", hops=3, most_paths=10)
    with pytest.raises(UserError, match=r"model\.latent: path over 3 hops and \d+ slots makes \d+ paths"):
        model.problem(DATA.collate([100, 101]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"latent": "path", "kind": "dynamic"}, "kind: end-to-end with latent: path"),
        ({"latent": "path", "distribution": "dirichlet"}, "distribution: categorical with latent: path"),
        (
            {"posterior": "facts", "distribution": "dirichlet"},
            "distribution: categorical with posterior: facts",
        ),
        ({"linear_start": 3, "kind": "dynamic"}, "linear_start: 0"),
        ({"kind": "supervised"}, "facts: likelihood or margin"),
        ({"distribution": "dirichlett"}, "dirichlet"),
        ({"hops": 6}, "less than or equal to 5"),
    ],
)
def test_contradictory_recipes_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        MemoryModelConfig(**options)


def test_measures_count_answers_patterns_and_facts() -> None:
    model = build(needs_posterior=True).eval()
    batch = DATA.collate(list(range(30)))
    problem = model.problem(batch, with_posterior=True)
    found = model.measures(batch, problem, Exact())
    assert found["accuracy"][1] == 30
    by_source = [value for name, value in found.items() if name.startswith("accuracy by source: ")]
    assert sum(total for total, _ in by_source) == found["accuracy"][0]
    assert sum(count for _, count in by_source) == 30
    hops = [found[f"attention_accuracy_hop_{hop}"] for hop in (1, 2, 3)]
    assert found["attention_accuracy"] == hops[-1]
    looked_at = problem.prior.probs[:, 0].argmax(dim=-1, keepdim=True)
    assert found["attention_accuracy"] == (float(batch.supporting.gather(1, looked_at).sum()), 30.0)
    looked_at = problem.posterior.probs[:, 0].argmax(dim=-1, keepdim=True)
    assert found["posterior_attention_accuracy"] == (float(batch.supporting.gather(1, looked_at).sum()), 30.0)
    assert found["unknown_word_share"][0] == 0


def test_an_unknown_answer_is_never_right() -> None:
    from dataclasses import replace

    model = build().eval()
    batch = DATA.collate([0, 1])
    strange = replace(batch, answers=torch.full_like(batch.answers, UNKNOWN_ANSWER))
    assert model.measures(strange, model.problem(strange), SoftContext())["accuracy"] == (0.0, 2.0)


@pytest.mark.parametrize(
    ("options", "objective"),
    [
        ({}, Soft()),
        ({"latent": "path", "hops": 2}, Marginal()),
        ({"kind": "supervised", "facts": "likelihood", "posterior": "facts", "hops": 1}, Elbo()),
        ({"kind": "dynamic", "hops": 1}, Marginal()),
    ],
    ids=["soft", "path", "supervised", "dynamic"],
)
def test_a_bare_loop_learns_where_people_are(options: dict[str, Any], objective: Any) -> None:
    config = WorldsConfig(stories=120, kinds=("one-fact",), facts=(4, 5), people=2, places=3)
    stories = tell_stories(config, seed=1)
    vocabulary = Vocabulary.collect(stories)
    data = StoryDataset(stories, vocabulary, memory=10, batch_size=32)
    torch.manual_seed(0)
    model = MemoryModel(MemoryModelConfig(size=16, random_noise=0.0, **options), vocabulary, memory=10)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for epoch in range(25):
        for indices in data.plan(epoch, 1):
            optimizer.zero_grad()
            loss_of(model, data.collate(indices), objective).backward()
            optimizer.step()
    model.eval()
    batch = data.collate(list(range(len(data))))
    predictor = SoftContext() if isinstance(objective, Soft) else Exact()
    found = model.measures(batch, model.problem(batch), predictor)
    assert found["accuracy"][0] / found["accuracy"][1] > 0.9
    assert found["attention_accuracy"][0] / found["attention_accuracy"][1] > (
        0.5 if predictor == SoftContext() else 0.8
    )
