"""A translator whose alignment is a chain, against all paths enumerated by plain loops."""

import itertools
import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from latentalign.alignment.registry import build_objective, parse_inference
from latentalign.translation.align import PairPieces, TranslationAligner
from latentalign.translation.beam.decoding import PredictiveDecoder
from latentalign.translation.beam.search import SearchOptions, beam_search
from latentalign.translation.config import ModelConfig
from latentalign.translation.data.dataset import make_batch
from latentalign.translation.data.tokenizer import END, NEVER
from latentalign.translation.network.model import TranslationModel
from latentalign.translation.translate import Translator
from tests.translation.tiny import NETWORKS, SENTENCES, TARGETS, tiny_assets, tiny_model

ASSETS = tiny_assets()
KINDS = ("jump", "monotone")
SIZES = {"embedding_size": 5, "memory_size": 6, "decoder_size": 7, "attention_size": 4, "hidden_size": 6}


def learnt_jumps(model):
    """Jumps that matter."""
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("transitions.scores"):
                parameter.copy_(0.15 * torch.randn(parameter.shape, generator=generator))
    return model


def chain_model(kind="jump", **settings):
    return learnt_jumps(
        tiny_model(
            ASSETS, scale=3.0, alignment={"name": "chain", "transitions": kind, "width": 3}, **settings
        )
    )


def small_model(kind, words=7, seed=2, network="lstm"):
    """So few words that all outputs can be enumerated."""
    torch.manual_seed(seed)
    alignment = {"name": "chain", "transitions": kind, "width": 2}
    config = ModelConfig(**SIZES, **NETWORKS[network], alignment=alignment)
    model = TranslationModel(config, source_size=9, target_size=words, needs_posterior=False).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4.0)
    return learnt_jumps(model)


def jump(model, kind, source, destination):
    """r(k, i) by the definition; None where a step is forbidden."""
    if kind == "monotone":
        return 0.0 if destination >= source else None
    jumps = model.latent.transitions
    distance = max(-jumps.width, min(jumps.width, destination - source))
    return jumps.rate * float(jumps.scores.detach()[distance + jumps.width])


def step_tables(model, source, target):
    """Scores s_t(i) and log f_t(i) of the target's words, as lists of lists."""
    batch = make_batch([source], [target])
    with torch.no_grad():
        memory = model.encode(batch.source, batch.source_mask)
        outputs, scores = model._read_targets(memory, batch.target_input)
        f = model.likelihood(memory, model.query(outputs), batch.target)
        count, positions = scores.shape[1:]
        step, position = torch.tensor(list(itertools.product(range(count), range(positions)))).t()
        log_f = f.log_probs_pairs(torch.zeros_like(step), step, position).view(count, positions, -1)
    return scores[0].tolist(), [
        [row[word] for row in rows] for rows, word in zip(log_f.tolist(), target, strict=True)
    ]


def paths(model, kind, source, target):
    """Every alignment of the whole target with its log p(z, y): plain sums, path by path."""
    scores, log_f = step_tables(model, source, target)
    positions = range(len(source))
    found = {}
    for path in itertools.product(positions, repeat=len(target)):
        total, before = 0.0, None
        for t, here in enumerate(path):
            moves = [0.0 if before is None else jump(model, kind, before, i) for i in positions]
            if moves[here] is None:
                break
            mass = sum(math.exp(scores[t][i] + move) for i, move in enumerate(moves) if move is not None)
            total += scores[t][here] + moves[here] - math.log(mass) + log_f[t][here]
            before = here
        else:
            found[path] = total
    return found


def log_sum(values):
    top = max(values)
    return top + math.log(sum(math.exp(value - top) for value in values))


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_problem_of_a_batch_has_the_marginal_of_all_paths(kind, network):
    model = small_model(kind, network=network)
    pairs = [([4, 5, 6], [4, 5, END]), ([7, 4], [6, END]), ([8], [5, 6, 5, END])]
    problem = model.problem(make_batch(*zip(*pairs, strict=True)))
    with torch.no_grad():
        value = parse_inference("exact").log_likelihood(problem.prior, problem.likelihood)
        found = torch.where(problem.weights, value, 0.0).sum(1)
    expected = [log_sum(paths(model, kind, *pair).values()) for pair in pairs]
    assert found.tolist() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("kind", "network"), [*((kind, "lstm") for kind in KINDS), ("jump", "transformer")])
def test_a_wide_beam_with_filters_is_exhaustive_search(kind, network):
    model, limit = small_model(kind, network=network), 3
    words = [word for word in range(7) if word != END and word not in NEVER]
    source = [4, 6, 5]
    expected = {
        tokens: log_sum(paths(model, kind, source, [*tokens, END]).values())
        for length in range(limit + 1)
        for tokens in itertools.product(words, repeat=length)
    }
    ranked = sorted(expected, key=lambda tokens: -expected[tokens])[:10]
    with torch.no_grad():
        memory = model.encode(torch.tensor([source]), torch.ones(1, 3, dtype=torch.bool))
        decoder = PredictiveDecoder(model, parse_inference("exact"), tolerance=0.0)
        options = SearchOptions(beam=200, n_best=10, length_penalty=0.0, eos_penalty=0.0)
        found = beam_search(
            decoder,
            memory,
            decoder.start(memory),
            torch.tensor([3]),
            options=options,
            limits=torch.tensor([limit]),
        )[0]
    assert [tuple(hypothesis.tokens) for hypothesis in found[:10]] == ranked
    for hypothesis in found[:10]:
        assert hypothesis.log_prob == pytest.approx(expected[tuple(hypothesis.tokens)], abs=1e-6)


@pytest.mark.parametrize(
    "settings", [{}, {"input_feeding": True}, NETWORKS["transformer"]], ids=["lstm", "fed", "transformer"]
)
@pytest.mark.parametrize("inference", ["exact", "kmax:3", "soft"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_search_reports_what_evaluation_says(kind, inference, settings):
    model, predictor = chain_model(kind, **settings), parse_inference(inference)
    options = SearchOptions(beam=3, max_length_factor=0.5)
    found = Translator(model, ASSETS, predictor=predictor, options=options).translate(SENTENCES)
    sources = [ASSETS.encode_source(sentence)[0] for sentence in SENTENCES]
    with torch.no_grad():
        problem = model.problem(make_batch(sources, [[*rows[0].pieces, END] for rows in found]))
        value = predictor.log_likelihood(problem.prior, problem.likelihood)
        expected = torch.where(problem.weights, value, 0.0).sum(1)
    assert [rows[0].log_prob for rows in found] == pytest.approx(expected.tolist(), abs=0.02)


def test_many_samples_search_like_the_exact_filter():
    model = chain_model()
    found = {}
    for inference in ("exact", "sample:3000"):
        options = SearchOptions(beam=2, max_length_factor=0.2)
        translator = Translator(model, ASSETS, predictor=parse_inference(inference), options=options)
        found[inference] = translator.translate(SENTENCES)
    for one, other in zip(found["exact"], found["sample:3000"], strict=True):
        assert one[0].log_prob == pytest.approx(other[0].log_prob, rel=0.03)


@pytest.mark.parametrize(("kind", "network"), [*((kind, "lstm") for kind in KINDS), ("jump", "cross")])
def test_links_are_smoothed_filtered_and_of_the_best_path(kind, network):
    model = small_model(kind, network=network)
    source, target = [4, 6, 5], [5, 4, 6, END]
    every = paths(model, kind, source, target)
    total = log_sum(every.values())
    smoothed = np.zeros((4, 3))
    for path, log_prob in every.items():
        for t, i in enumerate(path):
            smoothed[t, i] += math.exp(log_prob - total)
    filtered = np.zeros((4, 3))
    for t in range(4):
        prefix = paths(model, kind, source, target[: t + 1])
        whole = log_sum(prefix.values())
        for path, log_prob in prefix.items():
            filtered[t, path[-1]] += math.exp(log_prob - whole)
    pair = PairPieces(["a", "b", "c"], ["x", "y", "z"], source, [0, 1, 2], target, [0, 1, 2, -1])
    found = TranslationAligner(model, ASSETS).align_pieces([pair], exact=True, score=True)[0]
    assert found.exact == pytest.approx(smoothed[:3], abs=1e-9)
    assert found.filtered == pytest.approx(filtered[:3], abs=1e-9)
    assert found.score == pytest.approx(total / 4, abs=1e-9)
    best = max(every, key=every.get)
    assert found.path_links() == {(i, j): pytest.approx(smoothed[j, i]) for j, i in enumerate(best[:3])}
    assert abs(found.exact - found.filtered).max() > 1e-3  # later words say something


@pytest.mark.parametrize("network", NETWORKS)
def test_links_of_a_batch_are_those_one_by_one(network):
    model = chain_model(**NETWORKS[network])
    pairs = list(zip(SENTENCES, TARGETS, strict=True))
    aligner = TranslationAligner(model, ASSETS)
    assert aligner.choose() == "exact"
    for pair, found in zip(pairs, aligner.align(pairs, exact=True, score=True), strict=True):
        alone = next(aligner.align([pair], exact=True, score=True))
        assert found.score == pytest.approx(alone.score)
        for by in ("prior", "posterior", "filtered", "exact", "path"):
            assert found.probs(by) == pytest.approx(alone.probs(by)), by


def test_without_jumps_it_is_the_categorical():
    model, plain = chain_model(posterior=False), tiny_model(ASSETS, scale=3.0, posterior=False)
    with torch.no_grad():
        model.latent.transitions.scores.zero_()
        plain.load_state_dict(model.state_dict(), strict=False)
    options = SearchOptions(beam=4, n_best=4, max_length_factor=0.5)
    for one, other in zip(
        Translator(model, ASSETS, options=options).translate(SENTENCES),
        Translator(plain, ASSETS, options=options).translate(SENTENCES),
        strict=True,
    ):
        assert [row.text for row in one] == [row.text for row in other]
        assert [row.log_prob for row in one] == pytest.approx([row.log_prob for row in other], abs=1e-6)


@pytest.mark.parametrize("network", ["lstm", "transformer"])
@pytest.mark.parametrize("q", [None, "categorical", {"name": "chain", "width": 2}])
@pytest.mark.parametrize(
    "objective",
    [
        "soft",
        "marginal",
        "hard",
        "variational",
        {"name": "variational", "estimator": "reinforce"},
        "wake",
        "rws",
        "vimco",
        "em",
    ],
)
def test_objectives_train_every_part(objective, q, network):
    settings = NETWORKS[network]
    inference = {
        "memory_size": 8,
        **settings.get("inference_network", {}),
        "alignment": q,
        "from_prior": True,
    }
    model = chain_model(**{**settings, "inference_network": inference}).train()
    built = build_objective(objective)
    batch = make_batch(
        [ASSETS.encode_source(sentence)[0] for sentence in SENTENCES],
        [ASSETS.encode_target(sentence)[0] for sentence in TARGETS],
    )
    problem = model.problem(batch, with_posterior=built.needs_posterior)
    bound = built(problem, generator=torch.Generator().manual_seed(0))
    torch.where(problem.weights, bound.surrogate, 0.0).sum().backward()
    assert model.latent.transitions.scores.grad.abs().sum() > 0
    assert torch.isfinite(bound.value[problem.weights]).all()
    trained = [model.inference_network.score.memory.weight] if built.needs_posterior else []
    assert all(weight.grad.abs().sum() > 0 for weight in trained)
    if built.needs_posterior and q != "categorical":
        assert model.inference_network.latent.transitions.scores.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("alignment", "message"),
    [
        ({"name": "chain", "width": 0}, "width"),
        ({"name": "chain", "transitions": "jumps"}, "expected jump or monotone, received 'jumps'"),
        ({"name": "chain", "transitions": "strictly-monotone"}, "has to be able to stay"),
        ({"name": "chain", "rate": 0.0}, "rate: expected a number above 0"),
        ({"name": "chain", "widht": 3}, "did you mean 'width'"),
        ("chains", "did you mean 'chain'"),
    ],
)
def test_a_wrong_chain_is_refused_with_the_recipe(alignment, message):
    with pytest.raises(ValidationError, match=message):
        ModelConfig(alignment=alignment)
    with pytest.raises(ValidationError, match=message):
        ModelConfig(inference_network={"alignment": alignment})
