"""Expected counts of a shard against every way to link its words, in plain loops."""

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest

from latentalign.wordalign.estimation.counts import Counts
from latentalign.wordalign.estimation.expectation import Shard, expected_counts, schedule
from latentalign.wordalign.estimation.expectation_maximisation import InOneProcess, LearningStep, learn
from latentalign.wordalign.estimation.model import Model, no_counts
from latentalign.wordalign.posteriors import _log_frequency, posteriors
from latentalign.wordalign.settings import Settings
from latentalign.wordalign.text.corpus import Sentences
from latentalign.wordalign.text.vocabulary import WordVocabulary
from tests.wordalign import oracle
from tests.wordalign.small_models import (
    SETTINGS,
    corpus,
    jump_functions,
    plain_lexicon,
    random_counts,
    vocabularies,
)

FEW = [pair for pair in corpus(60, longest=3) if len(pair[1]) <= 3][:5]
SHORT = SETTINGS.model_copy(update={"widest_jump": 2, "least_count": 0.0})  # some jumps are longer


def jumps_of_paths(given, predicted, t, null_words, weights, classes):
    """N and E of one direction of a pair: {(class, distance): expected number} each."""
    width, length = (weights.shape[1] - 1) // 2, len(given)
    jump, end = jump_functions(weights, classes, length)
    total, _ = oracle.paths(given, predicted, t, null_words, SHORT.null, jump, end)
    taken, exposure = defaultdict(float), defaultdict(float)
    start, table = len(weights) - 1, weights.tolist()

    def column(distance):
        return max(-width, min(width, distance)) + width

    def chosen(k, place, chosen_distance, alternatives, share):
        taken[k, column(chosen_distance)] += share
        z = sum(table[k][column(d)] for d in alternatives)
        for d in alternatives:
            exposure[k, column(d)] += share / z

    for path in itertools.product([None, *range(length)], repeat=len(predicted)):
        weight, last = 1.0, None
        for word, position in zip(predicted, path, strict=True):
            if position is None:
                weight *= SHORT.null * null_words[word]
            else:
                weight *= (1 - SHORT.null) * jump(last, position) * t[given[position], word]
                last = position
        weight *= 1.0 if last is None else end(last)
        share, last = weight / total, None
        for position in (position for position in path if position is not None):
            k, place = (start, 0) if last is None else (classes[last], last)
            chosen(k, place, position - place, [i - place for i in range(length)], share)
            last = position
        if last is not None:  # one more choice: the end, or any position
            ends = length - last
            chosen(classes[last], last, ends, [*(i - last for i in range(length)), ends], share)
    return taken, exposure


def plain_null(counts: Counts, known, direction: int) -> dict[str, float]:
    """p(word | no link) by the variational estimate."""
    a = [float(count) + SETTINGS.alpha for count in counts.null[direction]]
    norm = oracle.exp_digamma(sum(a))
    words = known[1 - direction].words
    return {word: max(oracle.exp_digamma(x) / norm, 1e-12) for word, x in zip(words, a, strict=True)}


def by_words(given, predicted, t, null_words):
    """Likelihood and posterior of words that choose their links by themselves."""
    total, posterior = 1.0, []
    for word in predicted:
        each = [(1 - SHORT.null) / len(given) * t[f, word] for f in given]
        z = sum(each) + SHORT.null * null_words[word]
        total *= z
        posterior.append([value / z for value in each])
    return total, posterior


def combine(name, agree, p, r):
    """What each direction counts of a link."""
    if not agree:
        return p, r
    both = math.sqrt(p * r) if name == "words" else p * r
    return both, both


@pytest.mark.parametrize("name", ["words", "jumps"])
@pytest.mark.parametrize("agree", [True, False])
def test_counts_of_links_are_those_of_all_paths(name, agree):
    settings = SHORT.model_copy(update={"agree": agree})
    known = vocabularies([*FEW, (["other"], ["words"])])  # of other shards
    counts = random_counts(known, agree=agree, settings=settings)
    model = Model.of(counts, known, settings)
    step = next(step for step in schedule(settings) if step.name == name)
    found = expected_counts(Shard.of(FEW, known, settings), model, step)
    t = [plain_lexicon(counts, known, direction, oracle.exp_digamma) for direction in (0, 1)]
    null_words = [plain_null(counts, known, direction) for direction in (0, 1)]
    links, null = (defaultdict(float), defaultdict(float)), (defaultdict(float), defaultdict(float))
    log_likelihood = 0.0
    for pair in FEW:
        tables = []
        for direction in (0, 1):
            given, predicted = pair[direction], pair[1 - direction]
            told = t[direction], null_words[direction]
            if name == "words":
                total, posterior = by_words(given, predicted, *told)
            else:
                classes = [min(known[direction].index[word], settings.jump_classes - 1) for word in given]
                functions = jump_functions(model.jumps[direction].weights, classes, len(given))
                total, posterior = oracle.paths(given, predicted, *told, settings.null, *functions)
            log_likelihood += math.log(total)
            tables.append(np.array(posterior))
        counted = np.vectorize(lambda p, r: combine(name, agree, p, r))(tables[0], tables[1].T)
        for direction, table in enumerate(counted):
            for (j, e), (i, f) in itertools.product(enumerate(pair[1]), enumerate(pair[0])):
                links[direction][f, e] += table[j, i]
            for k, word in enumerate(pair[1 - direction]):
                # more than one link in all, where both directions count √(p·r)
                null[direction][word] += max(0.0, 1 - table.sum(axis=1 - direction)[k])
    for direction in (0, 1):
        sparse = found.links[direction]
        spelt = [
            (known[0].words[f], known[1].words[e])
            for f, e in zip(sparse.sources, sparse.targets, strict=True)
        ]
        assert dict(zip(spelt, sparse.values.tolist(), strict=True)) == pytest.approx(
            links[direction], abs=2e-4
        )
        words = known[1 - direction].words
        assert found.null[direction].tolist() == pytest.approx(
            [null[direction][word] for word in words], abs=2e-4
        )
    assert found.log_likelihood == pytest.approx(log_likelihood, rel=1e-4)
    assert (found.pairs, found.words) == (len(FEW), sum(len(side) for pair in FEW for side in pair))


def test_counts_of_jumps_are_those_of_all_paths():
    known = vocabularies(FEW)
    counts = random_counts(known, settings=SHORT)
    model = Model.of(counts, known, SHORT)
    found = expected_counts(Shard.of(FEW, known, SHORT), model, schedule(SHORT)[-1])
    for direction in (0, 1):
        t = plain_lexicon(counts, known, direction, oracle.exp_digamma)
        weights = model.jumps[direction].weights
        taken, exposure = np.zeros(weights.shape), np.zeros(weights.shape)
        for pair in FEW:
            given, predicted = pair[direction], pair[1 - direction]
            classes = [min(known[direction].index[word], SHORT.jump_classes - 1) for word in given]
            null_words = plain_null(counts, known, direction)
            for table, of_pair in zip(
                (taken, exposure),
                jumps_of_paths(given, predicted, t, null_words, weights, classes),
                strict=True,
            ):
                for place, value in of_pair.items():
                    table[place] += value
        np.testing.assert_allclose(found.jumps[direction].taken, taken, atol=2e-4)
        np.testing.assert_allclose(found.jumps[direction].exposure, exposure, atol=2e-3)


def test_small_counts_are_dropped():
    settings = SHORT.model_copy(update={"least_count": 0.05, "most_counts": 3})
    known = vocabularies(FEW)
    model = Model.of(random_counts(known, settings=settings), known, settings)
    found = expected_counts(Shard.of(FEW, known, settings), model, schedule(settings)[0])
    assert 0 < len(found.links[0]) <= 3
    assert found.links[0].values.min() >= 0.05


def test_at_first_jumps_are_short_and_words_without_a_link_come_by_frequency():
    known = vocabularies([*FEW, (["other", "more"], ["words"])])
    nothing = no_counts(known, SHORT)
    assert (nothing.pairs, nothing.words, len(nothing.links[0])) == (0, 0, 0)
    model = Model.of(nothing, known, SHORT)
    for side in (0, 1):
        assert nothing.null[side].tolist() == [0.0] * len(known[1 - side])
        assert nothing.jumps[side].taken.shape == model.jumps[side].weights.shape
        counts = known[1 - side].counts
        assert model.null[side].tolist() == pytest.approx((counts / counts.sum()).tolist())
        weights = model.jumps[side].weights
        for k in range(SHORT.jump_classes + 1):
            ahead = 1 if k < SHORT.jump_classes else 0
            row = [math.exp(-abs(d - ahead) / 3) + 0.001 for d in range(-2, 3)]
            assert weights[k].tolist() == pytest.approx([value / sum(row) for value in row], rel=1e-5)


def test_a_word_that_was_never_seen_is_rarer_than_all_others():
    known = WordVocabulary.of([["a", "a", "a", "b"]]), WordVocabulary.of([["c", "c"]])
    settings = Settings(jump_classes=3, widest_jump=5)
    model = Model.of(no_counts(known, settings), known, settings)

    def found(source, target):
        (batch,) = posteriors(Shard.of([(source, target)], known, settings), model)
        return batch

    assert found(["a", "new", "other"], ["new"]).unknown.tolist() == [3]
    assert found(["a", "b"], ["c"]).unknown.tolist() == [0]
    words = Sentences.of([["new", "b", "a"]], known[0]).words
    assert _log_frequency(words).tolist() == pytest.approx(
        [math.log(3 / 4), math.log(1 / 4), math.log(0.5 / 4), 0.0]  # the last is padding
    )


def test_a_round_reports_each_shard_and_ends_with_its_likelihood():
    settings = SHORT.model_copy(update={"independent_rounds": 2, "chain_rounds": 1})
    known = vocabularies(FEW)
    shards = [Shard.of(FEW[:3], known, settings), Shard.of(FEW[3:], known, settings)]
    seen: list[LearningStep] = []
    counts, history = learn(InOneProcess(shards), known, settings, schedule(settings), report=seen.append)
    assert [(step.done, step.total, step.stage) for step in seen] == [
        (0, 6, "begin"),
        *((n, 6, "words") for n in (1, 2, 3, 4)),
        *((n, 6, "jumps") for n in (5, 6)),
    ]
    assert [step.log_likelihood for step in seen] == [None, None, None, *history[:1] * 2, *history[1:2] * 2]
    words = sum(len(side) for pair in FEW for side in pair)
    assert (counts.pairs, counts.words) == (len(FEW), words)
    assert history[-1] == pytest.approx(counts.log_likelihood / words)
