import math

import pytest
import torch

from latentalign.alignment.metrics import exact_posterior
from latentalign.alignment.registry import build_objective, parse_inference
from latentalign.vqa.config import VqaModelConfig
from latentalign.vqa.dataset import VqaBatch
from latentalign.vqa.measures import measure_batch
from latentalign.vqa.model import VqaInferenceNetwork, VqaModel

CONFIG = VqaModelConfig(
    word_dim=4, question_dim=6, attention_dim=5, answer_hidden_dim=8,
    posterior_answer_dim=3, posterior_hidden_dim=7, dropout=0.0,
)  # fmt: skip
SIZES = {"words": 9, "answers": 4, "feature_dim": 5}


def make_batch(seed=0, regions=(3, 5)):
    generator = torch.Generator().manual_seed(seed)
    most = max(regions)
    mask = torch.arange(most) < torch.tensor(regions)[:, None]
    features = torch.randn(len(regions), most, 5, generator=generator) * mask[..., None]
    return VqaBatch(
        words=torch.tensor([[2, 3, 4], [5, 6, 0]]),
        lengths=torch.tensor([3, 2]),
        regions=features,
        region_mask=mask,
        targets=torch.tensor([[1], [3]]),
        answerable=torch.tensor([[True], [True]]),
        said=torch.tensor([[1] * 4 + [0] * 6, [3] * 10]),
        gold=torch.tensor([[True] + [False] * (most - 1), [False, True] + [False] * (most - 2)]),
        question_types=("what", "is"),
    )


def make_model(config=CONFIG, *, needs_posterior=True):
    torch.manual_seed(1)
    return VqaModel(config, **SIZES, needs_posterior=needs_posterior).eval()


def test_the_inference_network_is_the_formula_of_the_paper():
    torch.manual_seed(0)
    network = VqaInferenceNetwork(CONFIG, answers=4, region_dim=5)
    x, query, y = torch.randn(1, 3, 5), torch.randn(1, 1, 6), torch.tensor([[2]])
    scores = network(x, query, y)
    h = network.answer.weight[2]
    gate_x = (network.region_gate.weight @ h + network.region_gate.bias).clamp_min(0)
    gate_q = (network.question_gate.weight @ h + network.question_gate.bias).clamp_min(0)
    for i in range(3):
        inner = network.region.weight @ (x[0, i] * gate_x) + network.question.weight @ (query[0, 0] * gate_q)
        expected = network.energy.weight[0] @ torch.tanh(inner + network.question.bias)
        assert scores[0, 0, i].item() == pytest.approx(expected.item(), abs=1e-6)


def test_f_is_a_network_on_region_and_question():
    model, batch = make_model(), make_batch()
    problem = model.problem(batch)
    table = problem.likelihood.everywhere(problem.prior.support)  # [B,1,S]
    query = model.encode_question(batch.words, batch.lengths)[1, 0]
    both = torch.cat([batch.regions[1, 2], query])
    first = torch.cat([model.answer_region.weight, model.answer_question.weight], dim=1)
    hidden = (first @ both + model.answer_question.bias).relu()
    logits = model.answer.weight @ hidden + model.answer.bias
    assert table[1, 0, 2].item() == pytest.approx(logits.log_softmax(0)[3].item(), abs=1e-5)


def test_padding_changes_nothing():
    model, wide = make_model(), make_batch(regions=(3, 5))
    narrow = make_batch(regions=(3, 5))
    alone = VqaBatch(
        **{
            **{k: getattr(narrow, k)[:1] for k in ("targets", "answerable", "said", "lengths", "words")},
            "regions": narrow.regions[:1, :3], "region_mask": narrow.region_mask[:1, :3],
            "gold": narrow.gold[:1, :3], "question_types": ("what",),
        }
    )  # fmt: skip
    big, small = model.problem(wide, with_posterior=True), model.problem(alone, with_posterior=True)
    torch.testing.assert_close(big.prior.probs[:1, :, :3], small.prior.probs)
    torch.testing.assert_close(big.posterior.probs[:1, :, :3], small.posterior.probs)
    assert (big.prior.probs[0, :, 3:] == 0).all()
    exact = parse_inference("exact")
    torch.testing.assert_close(
        exact.log_probs(big.prior, big.likelihood)[:1], exact.log_probs(small.prior, small.likelihood)
    )


def test_parameters_are_split_and_the_posterior_leaves_theta_alone():
    model = make_model(VqaModelConfig(**{**CONFIG.model_dump(), "region_dim": 4}))
    theta, phi = {id(p) for p in model.theta()}, {id(p) for p in model.phi()}
    assert not theta & phi
    assert theta | phi == {id(p) for p in model.parameters()}
    problem = model.problem(make_batch(), with_posterior=True)
    problem.posterior.log_probs[problem.posterior.support].sum().backward()
    assert all(p.grad is None for p in model.theta())
    assert all(p.grad is not None for p in model.phi())
    assert make_model(needs_posterior=False).phi() == []


def test_a_posterior_from_the_prior_is_the_prior_times_what_the_network_says():
    batch, apart = make_batch(), make_model()
    joined = make_model(CONFIG.model_copy(update={"posterior_from_prior": True}))
    joined.load_state_dict(apart.state_dict())  # no weight is added
    problem, other = (model.problem(batch, with_posterior=True) for model in (joined, apart))
    for row, regions in enumerate((3, 5)):
        prior, said = (part.probs[row, 0, :regions].tolist() for part in (problem.prior, other.posterior))
        total = math.fsum(p * q for p, q in zip(prior, said, strict=True))
        expected = [p * q / total for p, q in zip(prior, said, strict=True)]
        assert problem.posterior.probs[row, 0, :regions].tolist() == pytest.approx(expected, rel=1e-5)
    assert (problem.posterior.probs[0, :, 3:] == 0).all()
    problem.posterior.entropy().sum().backward()
    assert all(p.grad is None for p in joined.theta())  # nothing is learnt through the prior


@pytest.mark.parametrize(
    "objective",
    ["soft", "marginal", "hard", {"name": "hard", "estimator": "reinforce"}, "variational",
     {"name": "variational", "estimator": "reinforce"}, {"name": "variational", "estimator": "gumbel"},
     "wake", "rws", "vimco", "svi", "em"],
    ids=str,
)  # fmt: skip
def test_every_categorical_objective_gives_gradients(objective):
    model, chosen = make_model(), build_objective(objective)
    problem = model.problem(make_batch(), with_posterior=chosen.needs_posterior)
    bound = chosen(problem)
    assert bound.surrogate.shape == (2, 1)
    (-bound.surrogate.sum()).backward()
    theta = [p.grad for p in model.theta() if p.grad is not None]
    assert any(gradient.abs().sum() > 0 for gradient in theta)
    if chosen.needs_posterior and objective != "svi":
        assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in model.phi())


def test_pretrained_vectors_are_the_first_embeddings():
    vectors = torch.randn(9, 4)
    model = VqaModel(CONFIG, **SIZES, needs_posterior=False, word_vectors=vectors)
    torch.testing.assert_close(model.words.weight.detach(), vectors)


@pytest.mark.parametrize("inference", ["exact", "kmax:2", "sample:50", "soft"])
def test_scores_follow_what_people_said(inference):
    model, batch = make_model(), make_batch()
    with torch.no_grad():
        model.answer.weight.zero_()
        model.answer.bias.copy_(torch.tensor([0.0, 9.0, 0.0, 1.0]))  # always says answer 1
    found = measure_batch(
        batch, model.problem(batch), parse_inference(inference), generator=torch.Generator().manual_seed(0)
    )
    assert found["score"] == pytest.approx((100.0, 2))
    assert found["score[what]"] == pytest.approx((100.0, 1))
    assert found["score[is]"] == pytest.approx((0.0, 1))
    # four of ten said it: leaving one of them out leaves three
    assert found["score_official"] == pytest.approx((100.0, 2))
    assert found["answerable"] == (200.0, 2)


def test_official_and_simple_score_differ_when_three_agree():
    model, batch = make_model(), make_batch()
    batch.said[0] = torch.tensor([1] * 3 + [0] * 7)
    batch.said[1] = torch.tensor([-1] * 9 + [-2])
    with torch.no_grad():
        model.answer.weight.zero_()
        model.answer.bias.copy_(torch.tensor([0.0, 9.0, 0.0, 1.0]))
    found = measure_batch(batch, model.problem(batch), parse_inference("exact"))
    assert found["score"][0] == pytest.approx(100.0)
    assert found["score_official"][0] == pytest.approx(90.0)


def test_gold_regions_are_looked_for_by_prior_posterior_and_network():
    model, batch = make_model(), make_batch()
    problem = model.problem(batch, with_posterior=True)
    batch.gold.zero_()
    batch.gold[0, problem.prior.mode()[0, 0]] = True
    batch.gold[1, problem.posterior.mode()[1, 0]] = True
    found = measure_batch(batch, problem, parse_inference("exact"))
    exact = exact_posterior(problem.prior, problem.likelihood).alignment_probs().argmax(-1)[:, 0]
    hits = batch.gold[torch.arange(2), exact].sum().item()
    assert found["posterior_gold"] == (100.0 * hits, 2)
    assert found["prior_gold"][0] >= 100
    assert found["inference_gold"][0] >= 100
    batch.gold.zero_()
    assert "prior_gold" not in measure_batch(batch, problem, parse_inference("exact"))


def test_the_exact_posterior_is_bayes_rule():
    model, batch = make_model(), make_batch()
    problem = model.problem(batch)
    posterior = exact_posterior(problem.prior, problem.likelihood).alignment_probs()
    assert posterior.sum(-1).flatten().tolist() == pytest.approx([1.0, 1.0])
    assert (posterior[0, 0, 3:] == 0).all()
    prior = problem.prior.probs[1, 0].tolist()
    f = problem.likelihood.everywhere(problem.prior.support)[1, 0].exp().tolist()
    total = math.fsum(p * value for p, value in zip(prior, f, strict=True))
    for i in range(5):
        assert posterior[1, 0, i].item() == pytest.approx(prior[i] * f[i] / total, rel=1e-4)
