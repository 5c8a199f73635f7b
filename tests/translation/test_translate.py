"""Translation of lines: batches against single sentences, predictors against each other, streaming."""

import itertools
import math

import pytest
import torch

from latentalign.alignment.registry import parse_inference
from latentalign.translation.beam.decoding import PredictiveDecoder
from latentalign.translation.beam.search import SearchOptions
from latentalign.translation.data.dataset import make_batch
from latentalign.translation.data.tokenizer import END, PAD, START
from latentalign.translation.translate import Translator, windows
from tests.translation.tiny import NETWORKS, SENTENCES, tiny_assets, tiny_model

ASSETS = tiny_assets()


def translator(model=None, *, inference="exact", assets=ASSETS, **options):
    batch_size = options.pop("batch_size", 64)
    model = tiny_model(assets) if model is None else model
    search = SearchOptions(**{"beam": 4, "eos_penalty": 0.5, "max_length_factor": 0.5, **options})
    return Translator(
        model, assets, options=search, predictor=parse_inference(inference), batch_size=batch_size
    )


def same(found, expected):
    assert [[t.text for t in row] for row in found] == [[t.text for t in row] for row in expected]
    for one, other in zip(itertools.chain(*found), itertools.chain(*expected), strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-6)
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-6)


@pytest.mark.parametrize(
    "settings",
    [{}, {"input_feeding": True}, NETWORKS["transformer"], NETWORKS["cross"]],
    ids=["lstm", "input feeding", "transformer", "cross"],
)
@pytest.mark.parametrize("inference", ["exact", "kmax:2", "soft"])
def test_a_batch_is_its_sentences_one_by_one(inference, settings):
    model = tiny_model(ASSETS, decoder_layers=2, **settings)
    together = translator(model, inference=inference, n_best=3).translate(SENTENCES)
    alone = [
        translator(model, inference=inference, n_best=3).translate([sentence])[0] for sentence in SENTENCES
    ]
    in_pairs = translator(model, inference=inference, n_best=3, batch_size=2).translate(SENTENCES)
    same(together, alone)
    same(in_pairs, alone)


@pytest.mark.parametrize("beam", [1, 5])
def test_all_positions_by_kmax_is_exact(beam):
    model = tiny_model(ASSETS)
    longest = max(len(ASSETS.encode_source(sentence)[0]) for sentence in SENTENCES)
    exact = translator(model, beam=beam).translate(SENTENCES)
    same(translator(model, beam=beam, inference=f"kmax:{longest}").translate(SENTENCES), exact)
    fewer = translator(model, beam=beam, inference="kmax:1").translate(SENTENCES)
    assert [row[0].log_prob for row in fewer] != pytest.approx([row[0].log_prob for row in exact])


def log_prob_by_hand(model, sentence, pieces):
    """log p(y|x) step by step: every position's softmax, weighted by the prior."""
    source, _ = ASSETS.encode_source(sentence)
    batch = make_batch([source], [[*pieces, END]])
    problem = model.problem(batch)
    total = 0.0
    for step, piece in enumerate([*pieces, END]):
        prob = 0.0
        for position in range(len(source)):
            context = problem.likelihood.values[0, position] + problem.likelihood.queries[0, step]
            f = model.output(torch.tanh(context)).softmax(-1)
            prob += float(problem.prior.probs[0, step, position] * f[piece])
        total += math.log(prob)
    return total


def test_reported_log_probability_is_that_of_the_output():
    model = tiny_model(ASSETS)
    search = translator(model, n_best=2)
    with torch.no_grad():
        for sentence, row in zip(SENTENCES, search.translate(SENTENCES), strict=True):
            source_length = len(ASSETS.encode_source(sentence)[0])
            for translation in row:
                expected = log_prob_by_hand(model, sentence, translation.pieces)
                length = len(translation.pieces)
                off = PredictiveDecoder.tolerance * (length + 1)
                assert translation.log_prob == pytest.approx(expected, abs=off)
                score = (translation.log_prob - 0.5 * source_length / (length + 1)) / ((5 + length) / 6)
                assert translation.score == pytest.approx(score, abs=1e-6)


def test_greedy_takes_the_likeliest_piece_every_time():
    model = tiny_model(ASSETS)
    pieces = translator(model, beam=1, eos_penalty=0.0).translate(SENTENCES[:1])[0][0].pieces
    source, _ = ASSETS.encode_source(SENTENCES[0])
    with torch.no_grad():
        problem = model.problem(make_batch([source], [[*pieces, END]]))
        scores = parse_inference("exact").log_probs(problem.prior, problem.likelihood)[0]
        scores[:, [PAD, START]] = -torch.inf
    limit = int(len(source) * 0.5) + 10
    assert scores.argmax(-1)[: len(pieces)].tolist() == list(pieces)
    assert len(pieces) == limit or int(scores[-1].argmax()) == END


def test_empty_lines_stay_empty_and_in_their_place():
    found = translator().translate(["", SENTENCES[3], "   ", SENTENCES[2], ""])
    assert [row[0].text for row in found][0::2] == ["", "", ""]
    same([found[1], found[3]], translator().translate([SENTENCES[3], SENTENCES[2]]))
    assert translator().translate([""], alignments=True)[0][0].text == ""


def test_n_best_are_different_texts_best_first():
    for row in translator(beam=8, n_best=5).translate(SENTENCES):
        texts, scores = [t.text for t in row], [t.score for t in row]
        assert len(set(texts)) == len(texts) == 5
        assert scores == sorted(scores, reverse=True)


def test_sampling_repeats_with_its_seed():
    model = tiny_model(ASSETS)
    once, again = (translator(model, inference="sample:3").translate(SENTENCES) for _ in range(2))
    same(once, again)
    options = SearchOptions(beam=4, max_length_factor=0.5)
    other = Translator(model, ASSETS, options=options, predictor=parse_inference("sample:3"), seed=1)
    found = [row[0].log_prob for row in other.translate(SENTENCES)]
    assert found != pytest.approx([row[0].log_prob for row in once])


def test_relaxed_alignments_are_sampled():
    model = tiny_model(ASSETS, scale=1.0, alignment="dirichlet")
    search = translator(model, inference="sample:2", beam=2)
    assert search.links_by == "posterior"
    assert len(search.translate(SENTENCES, alignments=True)) == len(SENTENCES)


@pytest.mark.parametrize("posterior", [True, False])
def test_alignments_are_over_the_words_of_the_output(posterior):
    search = translator(tiny_model(ASSETS, posterior=posterior))
    assert search.links_by == "exact"
    for sentence, row in zip(SENTENCES, search.translate(SENTENCES, alignments=True), strict=True):
        links = row[0].links(search.links_by)
        assert row[0].alignment.target_words == row[0].text.split()
        assert all(i < len(sentence.split()) for i, _ in links)
        assert len({j for _, j in links}) == len(links) <= len(row[0].text.split())


def test_a_sentence_that_is_too_long_is_cut():
    short = "ein Hund läuft"
    pieces = len(ASSETS.source.encode(short))
    model = tiny_model(ASSETS)
    cut = Translator(model, ASSETS, options=SearchOptions(beam=2), longest=pieces)
    assert cut.translate([f"{short} über die Wiese"])[0][0].text == cut.translate([short])[0][0].text
    whole = Translator(model, ASSETS, options=SearchOptions(beam=2))
    assert whole.translate([f"{short} über die Wiese"])[0][0].text != cut.translate([short])[0][0].text


def test_a_source_without_an_end_mark_is_translated():
    assets = tiny_assets(kind="whitespace", source_end=False)
    found = translator(tiny_model(assets), assets=assets).translate([*SENTENCES, "völlig unbekannt"])
    assert len(found) == len(SENTENCES) + 1


def test_windows_of_a_file_have_the_asked_size():
    assert list(windows("abcde", 2)) == [["a", "b"], ["c", "d"], ["e"]]
