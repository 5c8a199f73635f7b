"""What words share with others: affixes and bands, of known words and of new ones, and counts over other words."""

import math

import numpy as np
import pytest

from latentalign.wordalign.estimation import counts as module
from latentalign.wordalign.estimation.counts import Counts, JumpCounts, SparseCounts, pair_keys
from latentalign.wordalign.estimation.expectation import Shard
from latentalign.wordalign.estimation.lexicon import mean
from latentalign.wordalign.estimation.model import Model, pruned_total
from latentalign.wordalign.estimation.renumbering import joined, renumbered
from latentalign.wordalign.settings import Settings
from latentalign.wordalign.text.corpus import Sentences
from latentalign.wordalign.text.shards import cells, grouped
from latentalign.wordalign.text.vocabulary import BANDS, WordVocabulary
from tests.wordalign.small_models import SETTINGS, corpus, plain_lexicon, random_counts, vocabularies

# haus 4 times, hausrat 2, 17 once, ! once; the two words with letters share their first four
KNOWN = WordVocabulary.of([["haus"] * 4, ["hausrat"] * 2, ["17", "!"]])
START = slice(None, 4)


def test_shares_of_affixes_and_bands_by_hand():
    words = Sentences.of([["hausherr", "17", "haus", "x1", "?", "2", "3.5"]], KNOWN).words
    assert words.spellings == ["haus", "17", "hausherr", "x1", "?", "2", "3.5"]
    # a new word counts once; by its affix, haus has 6 occurrences
    assert words.shares(START).tolist() == pytest.approx([4 / 6, 1.0, 1 / 7, 1.0, 1.0, 1.0, 1.0])
    # frequencies 1, 2–3, 4–7, …: twelve of words with letters, twelve of numbers, twelve of other signs
    assert words.bands.tolist() == [2, 12, 0, 0, 24, 12, 12]
    # band 0 has no known word: a new one has all of it
    assert words.band_shares.tolist() == pytest.approx([1.0] * 7)
    assert KNOWN.bands.tolist() == [2, 1, 24, 12]
    assert BANDS == 36


def test_words_of_a_band_share_it_by_frequency_and_the_most_frequent_are_one_band():
    vocabulary = WordVocabulary.of([["a"] * 3, ["b"] * 2, ["c"] * 5000, ["d"] * 2048])
    assert vocabulary.bands.tolist() == [11, 11, 1, 1]  # c, d, a, b
    words = Sentences.of([["a", "b", "c"]], vocabulary).words
    assert words.band_shares.tolist() == pytest.approx([5000 / 7048, 3 / 5, 2 / 5])


def test_the_band_of_a_word_adds_to_the_lexicon_by_plain_loops():
    pairs = corpus(12)
    known = vocabularies(pairs)
    counts = random_counts(known, agree=False)
    weight = 0.3
    settings = SETTINGS.model_copy(update={"band_weight": weight})
    indexed = Shard.of(pairs, known, settings).indexed
    table = indexed.table
    for direction, found in enumerate(Model.of(counts, known, settings, mean).translate(indexed)):
        without = plain_lexicon(counts, known, direction, lambda a: a)
        links = counts.links[direction]
        together = np.full((BANDS, BANDS), 0.1)
        for f, e, value in zip(links.sources, links.targets, links.values, strict=True):
            bands = known[0].bands[f], known[1].bands[e]
            together[bands if direction == 0 else bands[::-1]] += value
        given, predicted = known[direction], known[1 - direction]
        for n in range(len(table)):
            pair = [
                words.spellings[place[n]]
                for words, place in zip(table.words, (table.source, table.target), strict=True)
            ]
            f, e = pair if direction == 0 else pair[::-1]
            one, other = given.index[f], predicted.index[e]
            same = sum(predicted.counts[predicted.bands == predicted.bands[other]])
            row = together[given.bands[one]]
            band = row[predicted.bands[other]] / row.sum() * predicted.counts[other] / same
            assert float(found[n]) == pytest.approx(without[f, e] + weight * band, rel=1e-3)


def test_counts_over_more_words_are_the_same_counts():
    old = WordVocabulary.of([["a"] * 4, ["b"] * 3, ["c"]]), WordVocabulary.of([["x"] * 2, ["y"]])
    more = WordVocabulary.of([["c"] * 9, ["b"] * 2]), WordVocabulary.of([["y"] * 5, ["z"]])
    new = tuple(joined(both) for both in zip(old, more, strict=True))
    assert (new[0].words, new[0].counts.tolist()) == (["c", "b", "a"], [10, 5, 4])
    assert (new[1].words, new[1].counts.tolist()) == (["y", "x", "z"], [6, 2, 1])
    links = [
        SparseCounts(pair_keys(np.array(f), np.array(e)), np.array(values, dtype=np.float32))
        for f, e, values in (([0, 0, 2], [0, 1, 1], [1.0, 2.0, 3.0]), ([1, 2], [0, 0], [4.0, 5.0]))
    ]
    # classes: a (0), b and c together (1), the start (2); afterwards c is 0, and b and a are the rest
    jumps = [
        JumpCounts(np.array([[1.0], [2.0], [3.0]]) * n, np.array([[4.0], [5.0], [6.0]]) * n) for n in (1, 10)
    ]
    null = np.array([0.5, 0.25]), np.array([1.0, 2.0, 3.0])
    found = renumbered(Counts((links[0], links[1]), null, (jumps[0], jumps[1]), 7, 8, -9.0), old, new)
    spelt = [
        {
            (new[0].words[f], new[1].words[e]): float(value)
            for f, e, value in zip(side.sources, side.targets, side.values, strict=True)
        }
        for side in found.links
    ]
    assert spelt == [
        {("a", "x"): 1.0, ("a", "y"): 2.0, ("c", "y"): 3.0},
        {("b", "x"): 4.0, ("c", "x"): 5.0},
    ]
    assert found.null[0].tolist() == [0.25, 0.5, 0.0]
    assert found.null[1].tolist() == [3.0, 2.0, 1.0]
    # the frequent source word `a` joins the rest; on the target side `x` does, and its class is left empty
    assert found.jumps[0].taken.tolist() == [[0.0], [3.0], [3.0]]
    assert found.jumps[0].exposure.tolist() == [[0.0], [9.0], [6.0]]
    assert found.jumps[1].taken.tolist() == [[0.0], [30.0], [30.0]]
    assert (found.pairs, found.words, found.log_likelihood) == (7, 8, -9.0)
    agreed = renumbered(Counts((links[0], links[0]), null, (jumps[0], jumps[1]), 7, 8, -9.0), old, new)
    assert agreed.links[0] is agreed.links[1]


@pytest.mark.parametrize(("agree", "chunk"), [(True, 1 << 18), (False, 1 << 18), (False, 5)])
def test_totals_add_every_count_and_drop_the_smallest(agree, chunk, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", chunk)
    known = vocabularies(corpus(6))
    parts = [random_counts(known, seed=seed, agree=agree) for seed in (1, 2, 3)]
    found = pruned_total(iter(parts), Settings(least_count=0.0))
    for side in (0, 1):
        keys = found.links[side].keys
        assert found.links[side].values == pytest.approx(sum(part.links[side].lookup(keys) for part in parts))
        assert len(keys) == len(set(np.concatenate([part.links[side].keys for part in parts])))
        assert found.null[side] == pytest.approx(sum(part.null[side] for part in parts))
        for what in ("taken", "exposure"):
            assert getattr(found.jumps[side], what) == pytest.approx(
                sum(getattr(part.jumps[side], what) for part in parts)
            )
    assert (found.links[0] is found.links[1]) == agree
    assert (found.pairs, found.words) == (3, 3)
    few = pruned_total(iter(parts), Settings(least_count=0.5, most_counts=4))
    assert all(0 < len(side) <= 4 and side.values.min() >= 0.5 for side in few.links)
    assert (few.links[0] is few.links[1]) == agree


def test_directions_that_agree_in_one_part_alone_are_added_up_apart():
    known = vocabularies(corpus(6))
    parts = [random_counts(known, seed=seed, agree=seed == 1) for seed in (1, 2)]
    found = Counts.total(parts)
    for side in (0, 1):
        total = sum(float(part.links[side].values.sum()) for part in parts)
        assert float(found.links[side].values.sum()) == pytest.approx(total)
    assert found.links[0] is not found.links[1]


def test_equal_counts_stand_or_fall_together():
    some = SparseCounts(np.arange(4), np.array([1.0, 2.0, 1.0, 3.0], dtype=np.float32))
    assert some.pruned(least=0.0, most=3).keys.tolist() == [1, 3]
    assert some.pruned(least=0.0, most=4).keys.tolist() == [0, 1, 2, 3]
    assert some.pruned(least=2.0, most=2).keys.tolist() == [1, 3]


def test_groups_hold_what_fits():
    assert list(grouped([3, 2, 4, 9, 1], 5, lambda item: item)) == [[3, 2], [4], [9], [1]]
    assert list(grouped([], 5, lambda item: item)) == []
    assert cells((["a", "b"], ["c", "d", "e"])) == 6


def test_a_word_without_a_link_is_never_impossible():
    known = vocabularies(corpus(6))
    counts = random_counts(known)
    counts.null[0][:] = 0.0
    counts.null[0][1] = 1e6  # all others become unlikely beyond measure
    model = Model.of(counts, known, SETTINGS)
    words = Sentences.of([[known[1].words[0], known[1].words[1], "new"]], known[1]).words
    found = model.null_of(words, 0).tolist()
    assert found[0] == found[2] == pytest.approx(1e-12)
    assert found[1] == pytest.approx(1.0, abs=1e-3)
    assert found[3] == 0.0  # padding
    assert math.isclose(sum(model.null[0]), 1.0, abs_tol=1e-3)
