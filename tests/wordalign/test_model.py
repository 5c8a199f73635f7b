"""M-steps against plain loops, posteriors against all paths, and expectation–maximisation against its promise."""

import math

import numpy as np
import pytest
import torch

from latentalign.wordalign.estimation.expectation import (
    LinkChain,
    LoadedShard,
    Round,
    Shard,
    expected_counts,
    schedule,
)
from latentalign.wordalign.estimation.expectation_maximisation import InOneProcess, learn
from latentalign.wordalign.estimation.jumps import JumpTables
from latentalign.wordalign.estimation.lexicon import IndexedTable, cuts, exp_digamma, mean
from latentalign.wordalign.estimation.model import Model, no_counts
from latentalign.wordalign.posteriors import posteriors
from latentalign.wordalign.settings import Settings
from tests.wordalign import oracle
from tests.wordalign.small_models import (
    SETTINGS,
    corpus,
    jump_functions,
    plain_lexicon,
    random_counts,
    vocabularies,
)


@pytest.mark.parametrize(
    ("estimate", "plain"), [(mean, lambda a: a), (exp_digamma, oracle.exp_digamma)], ids=["mean", "exp ψ"]
)
def test_the_lexicon_is_that_of_plain_loops(estimate, plain):
    pairs = [*corpus(12), (["kapital", "f1ttt"], ["capitals", "f1ttt"])]
    known = vocabularies(pairs)
    counts = random_counts(known)
    model = Model.of(counts, known, SETTINGS, estimate)
    shard = Shard.of(pairs, known, SETTINGS)
    table = shard.indexed.table
    spelt = [words.spellings for words in table.words]
    for direction, found in enumerate(model.translate(shard.indexed)):
        expected = plain_lexicon(counts, known, direction, plain)
        assert float(found[-1]) == 0.0  # padding
        for n in range(len(table)):
            pair = spelt[0][table.source[n]], spelt[1][table.target[n]]
            value = expected[pair if direction == 0 else pair[::-1]]
            assert float(found[n]) == pytest.approx(value, rel=2e-4, abs=1e-12), pair


def test_what_a_pair_of_words_is_worth_does_not_depend_on_the_other_pairs():
    pairs = corpus(12)
    known = vocabularies(pairs)
    model = Model.of(random_counts(known), known, SETTINGS.model_copy(update={"band_weight": 0.01}))
    together = _worth(model, pairs)
    for pair in pairs[:4]:
        for key, values in _worth(model, [pair]).items():
            assert values == together[key]


def _worth(model: Model, pairs: list[tuple[list[str], list[str]]]) -> dict[int, tuple[float, ...]]:
    indexed = Shard.of(pairs, model.vocabularies, model.settings).indexed
    found = [t.tolist() for t in model.translate(indexed)]
    return {int(key): (found[0][n], found[1][n]) for n, key in enumerate(indexed.table.keys)}


def test_unknown_words_are_explained_by_affixes_likeness_and_frequency():
    pairs = [(["regierung"], ["government"])] * 5 + [(["haus"], ["house"]), (["baum"], ["tree"])] * 3
    known = vocabularies(pairs)
    settings = Settings()
    counts, _ = learn(InOneProcess([Shard.of(pairs, known, settings)]), known, settings, schedule(settings))
    model = Model.of(counts, known, settings)

    def forward(source, target):
        indexed = Shard.of([([source], [target])], known, settings).indexed
        return float(model.translate(indexed)[0][0])

    assert forward("regierungen", "governments") > 100 * forward("baum", "governments")  # affixes
    assert forward("kapital", "capital") > 100 * forward("kapital", "quorum")  # likeness
    assert forward("neu", "wort") > 0  # nothing but frequency


def test_a_step_of_jumps_is_that_of_plain_loops():
    pairs = corpus(5)
    counts = random_counts(vocabularies(pairs)).jumps[0]
    found = JumpTables.of(counts, SETTINGS).weights
    width = SETTINGS.widest_jump
    prior = [math.exp(-abs(d - 1) / 6) + 0.001 for d in range(-width, width + 1)]
    prior = [value / sum(prior) for value in prior]
    for k in range(SETTINGS.jump_classes + 1):
        weights = []
        for d in range(2 * width + 1):
            n, e = counts.taken[k, d], counts.exposure[k, d]
            if k < SETTINGS.jump_classes:
                every = range(SETTINGS.jump_classes)
                pooled = (sum(counts.taken[j, d] for j in every) + prior[d]) / (
                    sum(counts.exposure[j, d] for j in every) + 1
                )
                weights.append((n + SETTINGS.jump_weight * pooled) / (e + SETTINGS.jump_weight))
            else:
                weights.append((n + prior[d]) / (e + 1))
        assert found[k].tolist() == pytest.approx([weight / sum(weights) for weight in weights], rel=1e-5)


def test_posteriors_are_those_of_all_paths():
    pairs = [pair for pair in corpus(40, longest=4) if len(pair[1]) <= 4][:8]
    known = vocabularies(pairs)
    counts = random_counts(known)
    model = Model.of(counts, known, SETTINGS)
    lexicons = [plain_lexicon(counts, known, direction, oracle.exp_digamma) for direction in (0, 1)]
    null_words = [
        {
            word: max(float(p), 1e-12)
            for word, p in zip(known[1 - direction].words, model.null[direction], strict=True)
        }
        for direction in (0, 1)
    ]
    found, scores = {}, {}
    for batch in posteriors(Shard.of(pairs, known, SETTINGS), model):
        for row, (number, inside) in enumerate(batch.pairs()):
            found[number] = batch.forward[inside], batch.backward[inside].T
            scores[number] = batch.scores[row]
            rows, columns = np.indices(batch.inside.shape[1:])
            assert (
                batch.inside[row] == (rows < len(pairs[number][1])) & (columns < len(pairs[number][0]))
            ).all()
            assert batch.unknown[row] == 0
    for number, pair in enumerate(pairs):
        gain = 0.0  # over words that are drawn by their frequency
        for direction, matrix in enumerate(found[number]):
            given, predicted = pair[direction], pair[1 - direction]
            classes = [min(known[direction].index[word], SETTINGS.jump_classes - 1) for word in given]
            jump, end = jump_functions(model.jumps[direction].weights, classes, len(given))
            likelihood, expected = oracle.paths(
                given, predicted, lexicons[direction], null_words[direction], SETTINGS.null, jump, end
            )
            np.testing.assert_allclose(matrix, expected, atol=2e-5)
            words = known[1 - direction]
            frequency = dict(zip(words.words, words.counts / words.counts.sum(), strict=True))
            gain += math.log(likelihood) - sum(math.log(frequency[word]) for word in predicted)
        assert scores[number] == pytest.approx(gain / (len(pair[0]) + len(pair[1])), abs=1e-4)


def test_words_alone_choose_by_bayes_rule():
    pairs = corpus(6)
    known = vocabularies(pairs)
    counts = random_counts(known)
    model = Model.of(counts, known, SETTINGS, mean)
    step = schedule(SETTINGS.model_copy(update={"agree": False}))[0]
    shard = Shard.of(pairs, known, SETTINGS)
    loaded = LoadedShard(shard, model)
    t = plain_lexicon(counts, known, 0, lambda a: a)
    for batch in shard.batches:
        side = loaded.directions(batch)[0]
        links = step.link_model(model).posterior(side).links
        for row, number in enumerate(batch.numbers.tolist()):
            source, target = pairs[number]
            for j, e in enumerate(target):
                nothing = SETTINGS.null * float(model.null[0][known[1].index[e]])
                each = [(1 - SETTINGS.null) / len(source) * t[f, e] for f in source]
                total = nothing + sum(each)
                expected = [value / total for value in each]
                assert links[row, j, : len(source)].tolist() == pytest.approx(expected, rel=1e-3, abs=1e-7)


def dirichlet_gap(a: np.ndarray, alpha: float) -> float:
    """KL from the prior Dirichlet(α, …) to Dirichlet(a)."""
    from torch import lgamma

    found, prior = torch.from_numpy(a), torch.full((len(a),), alpha, dtype=torch.float64)
    return float(
        lgamma(found.sum()) - lgamma(found).sum() - lgamma(prior.sum()) + lgamma(prior).sum()
        + ((found - prior) * (torch.digamma(found) - torch.digamma(found.sum()))).sum()
    )  # fmt: skip


def test_learning_never_lowers_its_bound_without_agreement():
    """The likelihood under exp ψ(a), less what the Dirichlets cost: the variational bound of the chain."""
    pairs = corpus(40, words=8)
    known = vocabularies(pairs)
    options = {"agree": False, "affix_weight": 0.0, "likeness_weight": 0.0, "band_weight": 0.0, "least_count": 0.0,
               "alpha": 0.05, "jump_classes": 1, "jump_weight": 1e-9, "jump_prior": 1e-9}  # fmt: skip
    settings = Settings(**options)
    shard = Shard.of(pairs, known, settings)
    model = Model.of(no_counts(known, settings), known, settings, mean)
    words, jumps = schedule(settings)[0], schedule(settings)[-1]
    counts = expected_counts(shard, model, words)
    bounds = []
    for _ in range(12):
        model = Model.of(counts, known, settings)
        cost = 0.0
        for direction in (0, 1):
            given, predicted = known[direction], known[1 - direction]
            table = np.full((len(given), len(predicted)), settings.alpha)
            links = counts.links[direction]
            places = (links.sources, links.targets) if direction == 0 else (links.targets, links.sources)
            np.add.at(table, places, links.values.astype(float))
            cost += sum(dirichlet_gap(row, settings.alpha) for row in table)
            cost += dirichlet_gap(counts.null[direction] + settings.alpha, settings.alpha)
        counts = expected_counts(shard, model, jumps)
        bounds.append(counts.log_likelihood - cost)
    gains = np.diff(bounds)
    assert (gains > -1e-3).all(), bounds
    assert bounds[-1] > bounds[0] + 10


def test_agreement_counts_no_more_than_either_direction():
    pairs = corpus(20)
    known = vocabularies(pairs)
    shard = Shard.of(pairs, known, SETTINGS)
    model = Model.of(no_counts(known, SETTINGS), known, SETTINGS, mean)
    alone = expected_counts(shard, model, schedule(SETTINGS.model_copy(update={"agree": False}))[-1])
    step: Round = schedule(SETTINGS)[-1]
    assert step.link_model is LinkChain
    agreed = expected_counts(shard, model, step)
    assert agreed.links[0] is agreed.links[1]
    for side in alone.links:
        assert agreed.links[0].values.sum() < side.values.sum()
    linked_and_not = agreed.links[0].values.sum() + agreed.null[0].sum()
    assert linked_and_not == pytest.approx(sum(len(pair[1]) for pair in pairs), rel=1e-3)


def test_affixes_are_the_first_and_the_last_letters():
    settings = Settings(prefixes=(4, 6), suffixes=(5,))
    assert ["regierung"[cut] for cut in cuts(settings)] == ["regi", "regier", "erung"]
    assert cuts(settings.model_copy(update={"affix_weight": 0.0})) == []


def test_an_indexed_table_holds_every_pair_of_affixes():
    pairs = corpus(10)
    known = vocabularies(pairs)
    table = Shard.of(pairs, known, SETTINGS).indexed.table
    indexed = IndexedTable.of(table, SETTINGS)
    spelt = [words.spellings for words in table.words]
    for cut, level in zip(cuts(SETTINGS), indexed.affixes, strict=True):
        for n in range(len(table)):
            key = int(level.keys[level.of_pair[n]])
            for side, place, affix in ((0, table.source, key >> 32), (1, table.target, key & 0xFFFFFFFF)):
                assert known[side].affixes(cut).index[spelt[side][place[n]][cut]] == affix
