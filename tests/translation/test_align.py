"""Word alignments: the map from awkward pieces to words, decoding, symmetrising, and scores of pairs."""

import math

import numpy as np
import pytest
import torch

from latentalign.alignment.metrics import exact_posterior, log_marginal
from latentalign.alignment.prediction import Exact
from latentalign.errors import UserError
from latentalign.text.symmetrise import decode_links, symmetrise
from latentalign.translation.align import TranslationAligner, word_probs
from latentalign.translation.data.dataset import make_batch
from tests.translation.tiny import NETWORKS, SENTENCES, TARGETS, tiny_assets, tiny_model

PAIRS = list(zip(SENTENCES, TARGETS, strict=True))


def test_pieces_add_up_to_words_by_hand():
    # source pieces of words 0 0 1 and the end mark; target pieces of words 0 1 1 and the end mark
    probs = torch.tensor(
        [[0.5, 0.2, 0.2, 0.1], [0.1, 0.1, 0.7, 0.1], [0.3, 0.3, 0.0, 0.4], [0.0, 0.0, 0.0, 1.0]]
    )
    found = word_probs(probs, [0, 1, 1, -1], [0, 0, 1, -1], shape=(2, 2))
    # word 1 of the target: the mean of (0.2, 0.7) and (0.6, 0.0)
    assert found == pytest.approx(np.array([[0.7, 0.2], [0.4, 0.35]]))


def test_padding_is_not_read():
    probs = torch.full((5, 6), 0.25)
    assert word_probs(probs, [0, -1], [0, 1, -1], shape=(1, 2)) == pytest.approx(np.array([[0.25, 0.25]]))


@pytest.mark.parametrize("kind", ["bpe", "whitespace"])
@pytest.mark.parametrize("source_end", [True, False])
def test_every_row_is_a_distribution_over_words(kind, source_end):
    assets = tiny_assets(kind=kind, source_end=source_end)
    awkward = [
        *PAIRS,
        ("Donau▁dampf  e\u0301 ﬁ 東京 👍🏽 שלום", "the\u00a0end … 👩‍👩‍👧 \u2581 ok"),
        ("x", "völligunbekannteszeug " * 3),
    ]
    aligner = TranslationAligner(tiny_model(assets), assets)
    for (source, target), found in zip(awkward, aligner.align(awkward, exact=True), strict=True):
        assert found.source_words == source.split()
        assert found.target_words == target.split()
        for by in ("prior", "posterior", "exact"):
            rows = found.probs(by)
            assert rows.shape == (len(target.split()), len(source.split()))
            sums = rows.sum(1)
            assert (sums <= 1 + 1e-9).all()
            assert source_end or sums == pytest.approx(np.ones(len(sums)))


def test_words_hold_the_mass_of_their_pieces():
    assets = tiny_assets()
    model = tiny_model(assets)
    source, target = PAIRS[1]
    ids, words = assets.encode_source(source)
    target_ids, target_words = assets.encode_target(target)
    assert len(ids) > len(source.split()) + 1  # the long word is in pieces
    with torch.no_grad():
        posterior = model.problem(make_batch([ids], [target_ids]), with_posterior=True).posterior.probs[0]
    expected = np.zeros((len(target.split()), len(source.split())))
    for j in range(len(target.split())):
        rows = [t for t, word in enumerate(target_words) if word == j]
        for i in range(len(source.split())):
            columns = [s for s, word in enumerate(words) if word == i]
            expected[j, i] = sum(float(posterior[t, s]) for t in rows for s in columns) / len(rows)
    found = next(TranslationAligner(model, assets).align([(source, target)]))
    assert found.posterior == pytest.approx(expected)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("batch_pieces", [1, 60, 4096])
def test_batches_do_not_change_alignments_or_scores(batch_pieces, network):
    assets = tiny_assets()
    model = tiny_model(assets, **NETWORKS[network])
    together = list(
        TranslationAligner(model, assets, batch_pieces=batch_pieces).align(
            PAIRS, exact=True, score=True, window=3
        )
    )
    for pair, found in zip(PAIRS, together, strict=True):
        alone = next(TranslationAligner(model, assets).align([pair], exact=True, score=True))
        assert found.score == pytest.approx(alone.score)
        for by in ("prior", "posterior", "exact"):
            assert found.probs(by) == pytest.approx(alone.probs(by))


def test_scores_and_exact_posteriors_are_those_of_the_core():
    assets = tiny_assets()
    model = tiny_model(assets, scale=2.0)
    source, target = PAIRS[0]
    batch = make_batch([assets.encode_source(source)[0]], [assets.encode_target(target)[0]])
    with torch.no_grad():
        problem = model.problem(batch)
        expected = log_marginal(problem.prior, problem.likelihood).mean()
        posterior = exact_posterior(problem.prior, problem.likelihood).probs[0]
    found = next(TranslationAligner(model, assets).align([(source, target)], exact=True, score=True))
    assert found.score == pytest.approx(float(expected), abs=2e-3)
    words = word_probs(
        posterior,
        assets.encode_target(target)[1],
        assets.encode_source(source)[1],
        shape=found.exact.shape,
    )
    assert np.abs(found.exact - words).max() < 1e-2


@pytest.mark.parametrize("batch_pieces", [1, 4096])
def test_pairs_are_scored_by_any_way_to_predict(batch_pieces):
    assets = tiny_assets()
    model = tiny_model(assets, scale=2.0)
    aligner = TranslationAligner(model, assets, batch_pieces=batch_pieces)
    found = aligner.score([("", "a"), *PAIRS, ("a b", "")], Exact())
    assert found[0] == found[-1] == -math.inf
    for (source, target), value in zip(PAIRS, found[1:-1], strict=True):
        batch = make_batch([assets.encode_source(source)[0]], [assets.encode_target(target)[0]])
        with torch.no_grad():
            problem = model.problem(batch)
            expected = log_marginal(problem.prior, problem.likelihood).mean()
        assert value == pytest.approx(float(expected))


def test_an_empty_side_has_no_links_and_the_worst_score():
    assets = tiny_assets()
    found = list(
        TranslationAligner(tiny_model(assets), assets).align([("", "a"), PAIRS[0], ("a b", "")], score=True)
    )
    assert found[0].score == found[2].score == -math.inf
    assert found[0].prior.shape == (1, 0)
    assert found[2].prior.shape == (0, 2)
    assert math.isfinite(found[1].score)
    assert decode_links(found[0].prior) == decode_links(found[2].prior) == {}
    assert decode_links(found[0].prior, threshold=0.1) == {}


def test_a_pair_that_is_too_long_has_no_links():
    assets = tiny_assets()
    aligner = TranslationAligner(tiny_model(assets), assets, longest=40)
    long = aligner.encode("ja " * 50, "yes")
    found = aligner.align_pieces([long, aligner.encode(*PAIRS[0])], exact=True, score=True)
    assert [one.too_long for one in found] == [True, False]
    assert found[0].score == -math.inf
    assert decode_links(found[0].exact) == {}
    assert found[0].exact.shape == (0, 0)  # its table might not fit into memory
    assert decode_links(found[1].exact)


def test_the_best_links_are_exact_where_they_exist():
    assets = tiny_assets()
    assert TranslationAligner(tiny_model(assets), assets).choose() == "exact"
    assert TranslationAligner(tiny_model(assets, alignment="dirichlet"), assets).choose() == "posterior"
    assert (
        TranslationAligner(tiny_model(assets, alignment="dirichlet", posterior=False), assets).choose()
        == "prior"
    )


def test_argmax_links_every_word_once_unless_no_word_is_likelier():
    probs = np.array([[0.6, 0.3], [0.3, 0.1], [0.2, 0.5]])  # rows lack 0.1, 0.6 and 0.3
    assert decode_links(probs) == {(0, 0): 0.6, (1, 2): 0.5}


def test_a_threshold_takes_every_likely_link():
    probs = np.array([[0.6, 0.3], [0.3, 0.1]])
    assert decode_links(probs, threshold=0.3) == {(0, 0): 0.6, (1, 0): 0.3, (0, 1): 0.3}


def test_two_directions_are_combined():
    forward = np.array([[0.9, 0.1], [0.8, 0.2]])  # [target, source]: 0-0, 0-1
    backward = np.array([[0.7, 0.3], [0.4, 0.6]])  # [source, target]: 0-0, 1-1
    assert symmetrise(forward, backward, "intersection") == {(0, 0): pytest.approx(0.63)}
    assert symmetrise(forward, backward, "union") == {
        (0, 0): pytest.approx(0.97),
        (0, 1): pytest.approx(1 - 0.2 * 0.7),
        (1, 1): pytest.approx(1 - 0.8 * 0.4),
    }
    assert symmetrise(forward, backward, "grow-diag-final-and")[0, 0] == pytest.approx(0.8)


def test_a_model_without_a_posterior_says_so():
    assets = tiny_assets()
    aligner = TranslationAligner(tiny_model(assets, posterior=False), assets)
    with pytest.raises(UserError, match="without an inference network"):
        aligner.choose("posterior")
    assert aligner.choose("prior") == "prior"
    assert aligner.choose() == "exact"
    with pytest.raises(UserError, match="expected one of posterior, prior, exact, got 'attention'"):
        aligner.choose("attention")
    assert next(aligner.align(PAIRS)).posterior is None


def test_relaxed_alignments_have_scores_but_no_exact_posterior():
    assets = tiny_assets()
    aligner = TranslationAligner(tiny_model(assets, alignment="dirichlet", scale=1.0), assets)
    one, other = (next(aligner.align(PAIRS, score=True)).score for _ in range(2))
    assert one == other
    assert aligner.choose("prior") == "prior"
    with pytest.raises(UserError, match="the exact posterior needs a discrete alignment"):
        aligner.choose("exact")
    with pytest.raises(ValueError, match="exact was not asked for"):
        next(aligner.align(PAIRS)).probs("exact")
    with pytest.raises(UserError, match="relaxed"):
        next(aligner.align(PAIRS, exact=True))
