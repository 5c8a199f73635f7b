"""Vocabularies, batches, the table of pairs and its cells, and sparse counts, against plain loops."""

from collections import Counter
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentalign.wordalign.estimation import counts
from latentalign.wordalign.estimation.counts import SparseCounts, pair_keys
from latentalign.wordalign.text import cooccurrence
from latentalign.wordalign.text.cooccurrence import _by_source_word, _runs, index_cells
from latentalign.wordalign.text.corpus import Sentences, make_batches
from latentalign.wordalign.text.likeness import likeness
from latentalign.wordalign.text.vocabulary import WordVocabulary
from tests.wordalign import oracle

sentences = st.lists(st.sampled_from(["a", "b", "c", "d", "e"]), max_size=9)
corpora = st.lists(st.tuples(sentences, sentences), min_size=1, max_size=12)


def test_words_are_ranked_by_frequency_then_by_spelling():
    vocabulary = WordVocabulary.of([["b", "a"], ["c", "b"], ["a", "d"]])
    assert vocabulary.words == ["a", "b", "c", "d"]
    assert vocabulary.counts.tolist() == [2, 2, 1, 1]


def check_cells(corpus, chunk):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cooccurrence, "_CHUNK", chunk)  # also where a word's cells do not fit into one chunk
        known = [WordVocabulary.of(words[:-1] for words in side) for side in zip(*corpus, strict=True)]
        source, target = (
            Sentences.of(side, vocabulary)
            for side, vocabulary in zip(zip(*corpus, strict=True), known, strict=True)
        )
        batches = make_batches(source, target, cells=40)
        table, cells = index_cells(batches, source, target)
    assert len(cells) == sum(batch.cells.stop - batch.cells.start for batch in batches)
    seen = Counter(number for batch in batches for number in batch.numbers.tolist())
    assert seen == Counter(n for n, (left, right) in enumerate(corpus) if left and right)
    spelt = [words.spellings for words in table.words]
    pairs = [(spelt[0][f], spelt[1][e]) for f, e in zip(table.source, table.target, strict=True)]
    assert len(set(pairs)) == len(pairs)
    assert (np.diff(table.keys) > 0).all()
    for batch in batches:
        found = cells[batch.cells].view(batch.shape)
        for row, number in enumerate(batch.numbers.tolist()):
            left, right = corpus[number]
            for t in range(found.shape[1]):
                for s in range(found.shape[2]):
                    cell = int(found[row, t, s])
                    if t < len(right) and s < len(left):
                        assert pairs[cell] == (left[s], right[t])
                    else:
                        assert cell == len(table)


@settings(max_examples=60, deadline=None)
@given(corpora, st.sampled_from([1 << 20, 3]))
def test_every_cell_knows_its_pair_of_words(corpus, chunk):
    check_cells(corpus, chunk)


@pytest.mark.parametrize("chunk", [1 << 20, 3])
def test_every_cell_of_some_pairs_knows_its_pair_of_words(chunk):
    check_cells([(list("abcab"), list("deed")), (["a"], ["e"]), (list("cb"), list("ddda"))], chunk)


def test_words_are_worked_on_whole_and_as_many_as_fit(monkeypatch):
    monkeypatch.setattr(cooccurrence, "_CHUNK", 5)
    words, cells = zip(*[(0, 2), (0, 2), (1, 1), (2, 4), (2, 3), (3, 1), (4, 4), (5, 1)], strict=True)
    assert list(islice(_runs(np.array(words), np.array(cells)), 9)) == [(0, 3), (3, 5), (5, 7), (7, 8)]


def test_a_frequent_word_is_worked_on_by_its_target_words(monkeypatch):
    monkeypatch.setattr(cooccurrence, "_CHUNK", 3)
    sides = [["a", "a"], ["b"]], [["c", "d", "e"], ["c"]]
    source, target = (Sentences.of(side, WordVocabulary.of(side)) for side in sides)
    chunks = [
        [(source.words.spellings[f], target.words.spellings[e]) for f, e in zip(words, targets, strict=True)]
        for words, targets, _ in _by_source_word(make_batches(source, target), source, target)
    ]
    assert chunks == [[("a", "c")] * 2, [("a", "d")] * 2, [("a", "e")] * 2, [("b", "c")]]


def test_pairs_with_an_empty_side_have_no_cells():
    sides = [["a"], []], [[], ["b"]]
    source, target = (Sentences.of(side, WordVocabulary.of(side)) for side in sides)
    table, cells = index_cells(make_batches(source, target), source, target)
    assert (len(table), len(cells)) == (0, 0)


def test_pairs_of_the_same_lengths_are_one_batch():
    long, short = ["a"] * 8, ["a"]
    sides = [long, short] * 4, [long, long, short, short] * 2
    source, target = (Sentences.of(side, WordVocabulary.of(side)) for side in sides)
    assert sorted(sorted(batch.numbers.tolist()) for batch in make_batches(source, target)) == [
        [0, 4],
        [1, 5],
        [2, 6],
        [3, 7],
    ]


def test_a_pair_is_padded_the_same_whatever_the_others_are():
    def shape(corpus):
        sides = [list(side) for side in zip(*corpus, strict=True)]
        source, target = (Sentences.of(side, WordVocabulary.of(side)) for side in sides)
        batches = make_batches(source, target)
        return next(batch.shape[1:] for batch in batches if 0 in batch.numbers)

    pair = (["a"] * 5, ["b"] * 3)
    assert shape([pair]) == shape([pair, (["a"] * 7, ["b"] * 4), (["a"], ["b"])]) == (4, 8)


@pytest.mark.parametrize("chunk", [1 << 18, 2])
@given(items=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.floats(0.1, 3)), max_size=30))
def test_sparse_counts_add_up(chunk, items):
    expected: dict[tuple[int, int], float] = {}
    for f, e, value in items:
        expected[f, e] = expected.get((f, e), 0.0) + value
    half = len(items) // 2
    parts = []
    for part in (items[:half], items[half:]):
        f, e, values = (
            np.array([item[k] for item in part], dtype=kind) for k, kind in enumerate((int, int, float))
        )
        parts.append(SparseCounts.collect(pair_keys(f, e), values))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counts, "_CHUNK", chunk)
        total = SparseCounts.total(parts)
    assert list(zip(total.sources.tolist(), total.targets.tolist(), strict=True)) == sorted(expected)
    assert total.values.tolist() == pytest.approx([expected[pair] for pair in sorted(expected)], rel=1e-5)
    for asked in ([(n, 5 - n) for n in range(6)], [(f, e) for f in range(7) for e in range(7)]):
        found = total.lookup(pair_keys(*np.array(asked).T))
        assert found.tolist() == pytest.approx([expected.get(pair, 0.0) for pair in asked], rel=1e-5)


def test_the_smallest_counts_are_dropped_first():
    some = SparseCounts(np.arange(5), np.array([0.5, 0.01, 3.0, 0.2, 1.0], dtype=np.float32))
    assert some.pruned(least=0.1, most=9).keys.tolist() == [0, 2, 3, 4]
    assert some.pruned(least=0.1, most=2).keys.tolist() == [2, 4]


words = st.text(alphabet="aäbckzéß1", min_size=1, max_size=30)


@settings(max_examples=60, deadline=None)
@given(st.lists(words, min_size=1, max_size=8), st.lists(words, min_size=1, max_size=8))
def test_words_that_look_alike_are_found_without_a_miss(one, other):
    pairs = np.array([(f, e) for f in range(len(one)) for e in range(len(other))])
    which, found = likeness((one, other), (pairs[:, 0], pairs[:, 1]), least=0.5)
    expected = {n: oracle.dice(one[f], other[e]) for n, (f, e) in enumerate(pairs)}
    assert dict(zip(which.tolist(), found.tolist(), strict=True)) == pytest.approx(
        {n: value for n, value in expected.items() if value >= 0.5}
    )


def test_words_that_share_no_letters_are_not_compared(monkeypatch):
    monkeypatch.setattr("latentalign.wordalign.text.likeness.dice", None)
    which, _ = likeness((["regierung"], ["house"]), (np.array([0]), np.array([0])), least=0.5)
    assert which.tolist() == []
