"""The model: padding, batching, stepping and gradients."""

import pytest
import torch
from torch import Tensor

from latentalign.alignment import AlignmentProblem, Elbo, Exact, Marginal, Soft
from latentalign.translation.data.dataset import PairBatch, make_batch
from latentalign.translation.data.tokenizer import END, START
from latentalign.translation.network.model import TranslationModel
from tests.translation.any_model import (
    SMALL,
    SOURCES,
    TARGETS,
    TRANSFORMER,
    check_batching,
    check_padding,
    tiny_model,
)


def losses(model: TranslationModel, batch: PairBatch) -> Tensor:
    """ELBO and soft bound at every target position, [2,B,T]."""
    problem = model.problem(batch, with_posterior=True)
    elbo = Elbo()(problem)
    soft = Soft()(AlignmentProblem(problem.prior, problem.likelihood))
    return torch.stack([elbo.surrogate, soft.surrogate])


VARIANTS = [
    {},
    TRANSFORMER,
    {**TRANSFORMER, "decoder": {**SMALL, "cross_layers": 1}, "score": "dot"},
    {"input_feeding": True},
    {"encoder_layers": 2, "decoder_layers": 2, "inference_network": {"memory_size": 6, "layers": 2}},
    {"input_feeding": True, "decoder_layers": 3, "initial_state": "zero"},
    {"score": "general", "hidden_size": 7},
    {"score": "dot"},
    {"inference_network": {"memory_size": 6, "from_prior": True}},
    {"alignment": {"name": "categorical", "normalizer": "sparsemax"}, "input_feeding": True},
]


@pytest.mark.parametrize("changes", VARIANTS)
def test_a_batch_gives_what_its_sentences_give_alone(changes: dict) -> None:
    check_batching(tiny_model(**changes), losses)


@pytest.mark.parametrize("changes", VARIANTS[:5])
def test_padding_changes_neither_value_nor_gradient(changes: dict) -> None:
    check_padding(tiny_model(**changes), losses)


@pytest.mark.parametrize("changes", VARIANTS)
def test_stepping_gives_what_teacher_forcing_gives(changes: dict) -> None:
    model = tiny_model(**changes).eval()
    batch = make_batch(SOURCES, TARGETS)
    problem = model.problem(batch)
    memory = model.encode(batch.source, batch.source_mask)
    state = memory.start
    for number in range(batch.target.shape[1]):
        prior, queries, state = model.step(memory, state, batch.target_input[:, number])
        torch.testing.assert_close(prior.mean()[:, 0], problem.prior.mean()[:, number])
        one = model.likelihood(memory, queries, batch.target[:, number, None])
        torch.testing.assert_close(
            Exact().log_likelihood(prior, one)[:, 0],
            Exact().log_likelihood(problem.prior, problem.likelihood)[:, number],
        )


@pytest.mark.parametrize("changes", VARIANTS[:4])
def test_hypotheses_that_share_a_memory_step_as_if_alone(changes: dict) -> None:
    model = tiny_model(**changes).eval()
    batch = make_batch(SOURCES, TARGETS)
    memory = model.encode(batch.source, batch.source_mask)
    rows = torch.tensor([0, 0, 1, 1, 2, 2])
    tokens = torch.tensor([[START, 5], [6, 7], [8, 9]])
    state = memory.start.select(rows)
    shared, shared_queries, shared_state = model.step(memory, state, tokens)
    alone, queries, state = model.step(memory.select(rows), state, tokens.flatten())
    torch.testing.assert_close(shared.mean().flatten(0, 1), alone.mean()[:, 0])
    torch.testing.assert_close(shared_queries.flatten(0, 1), queries[:, 0])
    for left, right in zip(vars(shared_state).values(), vars(state).values(), strict=True):
        torch.testing.assert_close(left, right)


@pytest.mark.parametrize("layers", [1, 2])
def test_input_feeding_gradients_are_those_of_stepping(layers: int) -> None:
    """The loop of training gathers weight gradients in one product; `step` leaves them to autograd."""
    model = tiny_model(input_feeding=True, decoder_layers=layers)
    batch = make_batch(SOURCES, TARGETS)
    gradients = []
    for fast in (True, False):
        model.zero_grad()
        if fast:
            problem = model.problem(batch)
            total = (
                Soft()(AlignmentProblem(problem.prior, problem.likelihood)).surrogate * batch.target_mask
            ).sum()
        else:
            memory = model.encode(batch.source, batch.source_mask)
            state, total = memory.start, torch.zeros((), dtype=torch.float64)
            for number in range(batch.target.shape[1]):
                prior, queries, state = model.step(memory, state, batch.target_input[:, number])
                one = model.likelihood(memory, queries, batch.target[:, number, None])
                total = (
                    total
                    + (
                        Soft()(AlignmentProblem(prior, one)).surrogate[:, 0] * batch.target_mask[:, number]
                    ).sum()
                )
        total.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert "decoder.lstm.weight_hh_l0" in gradients[0]
    torch.testing.assert_close(gradients[0], gradients[1])


def test_the_posterior_sees_the_word_it_explains_and_trains_no_word_vector() -> None:
    model = tiny_model()
    one, other = make_batch([SOURCES[0]], [[6, 5, END]]), make_batch([SOURCES[0]], [[6, 9, END]])
    # step 1 has the same past in both, and differs only in the word it predicts
    posteriors = [model.problem(batch, with_posterior=True).posterior for batch in (one, other)]
    assert not torch.allclose(posteriors[0].mean()[0, 1], posteriors[1].mean()[0, 1])
    priors = [model.problem(batch).prior.mean()[0, :2] for batch in (one, other)]
    torch.testing.assert_close(*priors)
    posteriors[0].entropy().sum().backward()
    assert model.target_embedding.weight.grad is None
    assert model.source_embedding.weight.grad is None


def test_a_posterior_from_the_prior_is_the_prior_times_what_the_paper_s_network_says() -> None:
    batch = make_batch(SOURCES, TARGETS)
    apart, joined = tiny_model(), tiny_model(inference_network={"memory_size": 6, "from_prior": True})
    joined.load_state_dict(apart.state_dict())  # no weight is added
    problem, other = (model.problem(batch, with_posterior=True) for model in (joined, apart))
    product = problem.prior.probs * other.posterior.probs
    torch.testing.assert_close(problem.posterior.probs, product / product.sum(dim=-1, keepdim=True))
    # and θ learns nothing through it
    entropy = problem.posterior.entropy().sum()
    assert all(part is None for part in torch.autograd.grad(entropy, joined.theta(), allow_unused=True))


def test_theta_and_phi_share_nothing_and_leave_nothing_out() -> None:
    model = tiny_model()
    theta, phi = ({id(p) for p in part} for part in (model.theta(), model.phi()))
    assert theta
    assert phi
    assert not theta & phi
    assert theta | phi == {id(p) for p in model.parameters()}


def test_without_a_bridge_the_source_reaches_the_decoder_through_the_alignment_alone() -> None:
    batches = [make_batch([source], [TARGETS[0]]) for source in SOURCES[:2]]
    outputs = {}
    for state in ("zero", "encoder"):
        model = tiny_model(initial_state=state).eval()
        memories = [model.encode(batch.source, batch.source_mask) for batch in batches]
        outputs[state] = [model.step(memory, memory.start, torch.tensor([START]))[1] for memory in memories]
    torch.testing.assert_close(*outputs["zero"])
    assert not torch.allclose(*outputs["encoder"])  # with one, it does not have to


@pytest.mark.parametrize("alignment", ["dirichlet", {"name": "logistic-normal", "scale": 0.5}])
def test_relaxed_alignments_are_a_change_of_one_key(alignment: object) -> None:
    model = tiny_model(alignment=alignment)
    problem = model.problem(make_batch(SOURCES, TARGETS), with_posterior=True)
    assert problem.posterior is not None
    kl = problem.posterior.kl(problem.prior)
    assert kl.shape == problem.weights.shape
    assert bool((kl >= 0).all())


def test_dropout_is_off_in_evaluation_and_follows_the_seed_in_training() -> None:
    model = tiny_model(dropout=0.4)
    batch = make_batch(SOURCES, TARGETS)

    def marginal(seed: int) -> Tensor:
        torch.manual_seed(seed)
        problem = model.problem(batch)
        return Marginal()(AlignmentProblem(problem.prior, problem.likelihood)).value

    torch.testing.assert_close(marginal(1), marginal(1))
    assert not torch.allclose(marginal(1), marginal(2))
    model.eval()
    torch.testing.assert_close(marginal(1), marginal(2))
