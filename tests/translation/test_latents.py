"""The Gaussian context in the translator: padding, batching, stepping, decoding, links, and what is refused."""

import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from latentalign.alignment import (
    AlignmentProblem,
    Categorical,
    Elbo,
    GaussianContext,
    Pathwise,
    Soft,
    SoftContext,
    VectorLikelihood,
    parse_inference,
)
from latentalign.alignment.likelihoods.softmax_head import SoftmaxHead
from latentalign.errors import UserError
from latentalign.translation.align import TranslationAligner
from latentalign.translation.beam.search import SearchOptions
from latentalign.translation.config import ModelConfig
from latentalign.translation.data.dataset import PairBatch, make_batch
from latentalign.translation.data.tokenizer import END
from latentalign.translation.network.latents import MINIMUM_SCALE, LatentContext, build_latent
from latentalign.translation.network.model import TranslationModel
from latentalign.translation.translate import Translator
from tests.translation import tiny
from tests.translation.any_model import (
    SOURCES,
    TARGETS,
    TRANSFORMER,
    check_batching,
    check_padding,
    tiny_model,
)

GAUSSIAN = {"alignment": "gaussian-context"}
VARIANTS = [
    {},
    TRANSFORMER,
    {"input_feeding": True},
    {"encoder_layers": 2, "decoder_layers": 2, "hidden_size": 7},
    {"alignment": {"name": "gaussian-context", "scale": 0.5, "normalizer": "sparsemax"}},
]


def model_with(**changes: object) -> TranslationModel:
    return tiny_model(**{**GAUSSIAN, **changes})


def losses(model: TranslationModel, batch: PairBatch) -> Tensor:
    """The bound one deviation above the posterior's mean (noise that padding cannot move) and soft, [2,B,T]."""
    problem = model.problem(batch, with_posterior=True)
    prior, posterior = problem.prior, problem.posterior
    assert isinstance(prior, GaussianContext)
    assert isinstance(posterior, GaussianContext)
    bound = problem.likelihood.mixture(posterior.loc + posterior.scale) - posterior.kl(prior)
    return torch.stack([bound, Soft()(AlignmentProblem(prior, problem.likelihood)).surrogate])


@pytest.mark.parametrize("changes", VARIANTS)
def test_a_batch_gives_what_its_sentences_give_alone(changes: dict) -> None:
    check_batching(model_with(**changes), losses)


@pytest.mark.parametrize("changes", VARIANTS[:4])
def test_padding_changes_neither_value_nor_gradient(changes: dict) -> None:
    model = model_with(**changes)
    reached = check_padding(model, losses)
    # the bound has a gradient in every weight
    assert reached == [name for name, _ in model.named_parameters()]


@pytest.mark.parametrize("changes", VARIANTS)
def test_stepping_gives_what_teacher_forcing_gives(changes: dict) -> None:
    model = model_with(**changes).eval()
    batch = make_batch(SOURCES, TARGETS)
    problem = model.problem(batch)
    whole = SoftContext().log_likelihood(problem.prior, problem.likelihood)
    memory = model.encode(batch.source, batch.source_mask)
    state = memory.start
    for number in range(batch.target.shape[1]):
        prior, queries, state = model.step(memory, state, batch.target_input[:, number])
        for name in ("loc", "scale"):
            torch.testing.assert_close(getattr(prior, name)[:, 0], getattr(problem.prior, name)[:, number])
        torch.testing.assert_close(prior.alignment_probs()[:, 0], problem.prior.alignment_probs()[:, number])
        one = model.likelihood(memory, queries, batch.target[:, number, None])
        torch.testing.assert_close(SoftContext().log_likelihood(prior, one)[:, 0], whole[:, number])


def test_soft_is_the_ordinary_model_with_the_same_weights() -> None:
    gaussian, ordinary = model_with(), tiny_model()
    names = gaussian.load_state_dict(ordinary.state_dict(), strict=False)
    assert not names.unexpected_keys
    assert set(names.missing_keys) == {
        f"{place}latent.scale.{part}" for place in ("", "inference_network.") for part in ("weight", "bias")
    }
    batch = make_batch(SOURCES, TARGETS)
    one, other = (model.problem(batch, with_posterior=True) for model in (gaussian, ordinary))
    torch.testing.assert_close(
        Soft()(AlignmentProblem(one.prior, one.likelihood)).value,
        Soft()(AlignmentProblem(other.prior, other.likelihood)).value,
    )
    torch.testing.assert_close(one.prior.alignment_entropy(), other.prior.alignment_entropy())
    torch.testing.assert_close(one.posterior.alignment_probs(), other.posterior.alignment_probs())


def test_the_ordinary_model_has_the_weights_it_always_had() -> None:
    for alignment in ("categorical", "dirichlet"):
        assert not [name for name in tiny_model(alignment=alignment).state_dict() if "latent" in name]


def test_noise_belongs_to_the_prior_in_theta_and_to_the_posterior_in_phi() -> None:
    model = model_with()
    theta, phi = ({id(p) for p in part} for part in (model.theta(), model.phi()))
    assert id(model.latent.scale.weight) in theta
    assert id(model.inference_network.latent.scale.weight) in phi
    assert not theta & phi
    assert theta | phi == {id(p) for p in model.parameters()}


def test_q_learns_while_theta_stands_still() -> None:
    model = model_with()
    for parameter in model.theta():
        parameter.requires_grad_(False)
    batch = make_batch(SOURCES, TARGETS)

    def bound() -> Tensor:
        problem = model.problem(batch, with_posterior=True)
        value = Elbo(Pathwise(samples=8))(problem, generator=torch.Generator().manual_seed(1))
        return (value.surrogate * problem.weights).sum()

    before, optimizer = bound().item(), torch.optim.Adam(model.phi(), lr=0.05)
    for _ in range(8):
        optimizer.zero_grad()
        (-bound()).backward()
        optimizer.step()
    assert bound().item() > before + 0.5
    assert all(parameter.grad is None for parameter in model.theta())


@torch.no_grad()
@pytest.mark.parametrize("scale", [0.05, 0.1, 1.0])
def test_the_deviation_starts_near_the_scale_asked_for_and_stays_above_its_minimum(scale: float) -> None:
    torch.manual_seed(0)
    latent = LatentContext(6, 5, scale=scale)
    for parameter in latent.parameters():
        torch.nn.init.uniform_(parameter, -0.1, 0.1)
    scores, values = torch.zeros(2, 3, 4), torch.randn(2, 4, 5)
    found = latent(scores, torch.rand(2, 3, 6) * 2 - 1, values, None).scale
    assert float(found.log().mean()) == pytest.approx(math.log(scale), abs=0.2)
    least = latent(scores, -1e6 * latent.scale.weight.sum(0).sign().expand(2, 3, 6), values, None).scale
    assert float(least.min()) == pytest.approx(MINIMUM_SCALE)


# --- decoding and links ---

ASSETS = tiny.tiny_assets()


def translator(model: object, inference: str) -> Translator:
    options = SearchOptions(beam=3, eos_penalty=0.5, max_length_factor=0.5)
    return Translator(model, ASSETS, options=options, predictor=parse_inference(inference))


@pytest.mark.parametrize("feeding", [False, True])
def test_the_beam_reports_the_log_probability_at_the_mean(feeding: bool) -> None:
    model = tiny.tiny_model(ASSETS, input_feeding=feeding, **GAUSSIAN)
    for sentence, row in zip(
        tiny.SENTENCES, translator(model, "soft").translate(tiny.SENTENCES), strict=True
    ):
        source, _ = ASSETS.encode_source(sentence)
        with torch.no_grad():
            problem = model.problem(make_batch([source], [[*row[0].pieces, END]]))
            expected = SoftContext().log_likelihood(problem.prior, problem.likelihood).sum()
        assert row[0].log_prob == pytest.approx(float(expected), abs=1e-6)


def test_sampled_beams_repeat_with_their_seed_and_come_with_links() -> None:
    model = tiny.tiny_model(ASSETS, scale=1.0, **GAUSSIAN)
    once, again = (translator(model, "sample:3").translate(tiny.SENTENCES, alignments=True) for _ in range(2))
    assert [row[0].text for row in once] == [row[0].text for row in again]
    assert translator(model, "sample:3").links_by == "posterior"
    assert any(row[0].links("posterior") for row in once)
    without = tiny.tiny_model(ASSETS, posterior=False, **GAUSSIAN)
    assert translator(without, "soft").links_by == "prior"


def test_links_are_the_attention_of_prior_and_posterior() -> None:
    pairs = list(zip(tiny.SENTENCES, tiny.TARGETS, strict=True))
    aligner = TranslationAligner(tiny.tiny_model(ASSETS, **GAUSSIAN), ASSETS)
    # a categorical model with the same weights looks at the same places
    ordinary = tiny.tiny_model(ASSETS)
    ordinary.load_state_dict(aligner.model.state_dict(), strict=False)
    for one, other in zip(
        aligner.align(pairs, score=True), TranslationAligner(ordinary, ASSETS).align(pairs), strict=True
    ):
        np.testing.assert_allclose(one.prior, other.prior, atol=1e-9)
        np.testing.assert_allclose(one.posterior, other.posterior, atol=1e-9)
        assert one.score is not None
        assert -math.inf < one.score < 0
    with pytest.raises(UserError, match="Gaussian, use prior"):
        next(aligner.align(pairs, exact=True))


# --- names ---


def test_what_a_name_builds() -> None:
    gaussian = build_latent("gaussian-context", query_size=3, size=2)
    assert isinstance(gaussian.example(), GaussianContext)
    head = SoftmaxHead(torch.nn.Linear(2, 5))
    f = gaussian.likelihood(head, torch.zeros(1, 4, 2), torch.zeros(1, 3, 2), None, width=5)
    assert isinstance(f, VectorLikelihood)
    assert isinstance(build_latent("categorical", query_size=3, size=2).example(), Categorical)


@pytest.mark.parametrize(
    ("alignment", "message"),
    [
        ("gausian-context", "did you mean 'gaussian-context'"),
        ({"name": "gaussian-context", "scales": 1.0}, "expected scale, normalizer, received 'scales'"),
        ({"name": "gaussian-context", "scale": 0.0}, "scale: expected a number above 0"),
        ({"name": "gaussian-context", "normalizer": "sigmoid"}, "expected softmax, sparsemax or entmax15"),
        ({"name": "categorical", "normaliser": "softmax"}, "did you mean 'normalizer'"),
    ],
)
def test_a_wrong_alignment_is_refused_with_the_recipe(alignment: object, message: str) -> None:
    state = torch.get_rng_state()
    with pytest.raises(ValidationError, match=message):
        ModelConfig(alignment=alignment)
    ModelConfig(alignment="gaussian-context")
    assert torch.equal(state, torch.get_rng_state())  # reading a recipe draws nothing
