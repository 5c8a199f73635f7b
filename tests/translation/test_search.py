"""Beam search against exhaustive enumeration written apart from it, on models small enough for both."""

import itertools
import math
import random
from dataclasses import dataclass

import pytest
import torch

from latentalign.errors import UserError
from latentalign.translation.beam.search import Scores, SearchOptions, beam_search, best_continuations

START, END = 0, 1


@dataclass
class Rows:
    """A table of rows, for the memory (sentence number) and the state (previous two tokens)."""

    table: torch.Tensor

    def select(self, index):
        return Rows(self.table[index])


def scores_of(logits, *, as_probs):
    """The same scores as logits, or as probabilities of which some hypotheses have only a part."""
    if not as_probs:
        return Scores(logits, logits.logsumexp(-1))
    part = -torch.arange(logits.shape[1], dtype=logits.dtype).expand(logits.shape[:2])
    return Scores(logits.softmax(-1) * part.exp()[..., None], part, probabilities=True)


class Trigrams:
    """p(next | sentence, previous two tokens) from random tables; sees every call's batch size."""

    start_token, end_token = START, END

    def __init__(self, sentences, vocabulary, *, seed, as_probs=False, sharpness=1.5):
        generator = torch.Generator().manual_seed(seed)
        shape = (sentences, vocabulary, vocabulary, vocabulary)
        self.logits = torch.randn(shape, generator=generator, dtype=torch.float64) * sharpness
        self.logits[..., START] = -torch.inf
        self.as_probs = as_probs
        self.rows = []

    def step(self, memory, state, tokens, beam):
        sentences, width = tokens.shape
        state = state.table.view(sentences, width, 2)
        state = torch.stack([state[..., 1], tokens], dim=-1)
        logits = self.logits[memory.table[:, None].expand(-1, width), state[..., 0], state[..., 1]].clone()
        self.rows.append(sentences * width)
        scores = scores_of(logits, as_probs=self.as_probs)
        return scores, Rows(state.view(-1, 2))

    def search(self, lengths, *, limits=None, only=None, **options):
        sentences = torch.arange(len(lengths)) if only is None else torch.tensor(only)
        lengths = torch.tensor(lengths)[sentences]
        limits = None if limits is None else torch.tensor(limits)[sentences]
        state = Rows(torch.zeros(len(sentences), 2, dtype=torch.long))
        return beam_search(
            self, Rows(sentences), state, lengths, options=SearchOptions(**options), limits=limits
        )


def exhaustive(model, sentence, *, source_length, limit, alpha, penalty):
    """Every output of at most `limit` tokens with its rank score and log-probability, best first."""
    vocabulary = model.logits.shape[-1]
    probs = model.logits[sentence].softmax(-1).tolist()
    found = []
    for length in range(limit + 1):
        for tokens in itertools.product(range(END + 1, vocabulary), repeat=length):
            log_prob, before = 0.0, (START, START)
            for token in (*tokens, END):
                log_prob += math.log(probs[before[0]][before[1]][token])
                before = (before[1], token)
            score = (log_prob - penalty * source_length / (length + 1)) / ((5 + length) / 6) ** alpha
            found.append((score, log_prob, list(tokens)))
    return sorted(found, key=lambda item: -item[0])


@pytest.mark.parametrize("as_probs", [False, True])
@pytest.mark.parametrize(("alpha", "penalty"), [(1.0, 3.0), (0.0, 0.0), (0.6, 0.5), (2.0, 0.0)])
def test_a_wide_beam_is_exhaustive_search(alpha, penalty, as_probs):
    lengths, limits = [2, 3, 5], [2, 4, 3]
    model = Trigrams(3, 5, seed=3, as_probs=as_probs)
    found = model.search(
        lengths, limits=limits, beam=200, n_best=10, length_penalty=alpha, eos_penalty=penalty
    )
    for sentence, hypotheses in enumerate(found):
        expected = exhaustive(
            model,
            sentence,
            source_length=lengths[sentence],
            limit=limits[sentence],
            alpha=alpha,
            penalty=penalty,
        )
        assert len(hypotheses) >= min(10, len(expected))
        for hypothesis, (score, log_prob, tokens) in zip(hypotheses[:10], expected, strict=False):
            assert hypothesis.tokens == tokens
            assert hypothesis.score == pytest.approx(score, abs=1e-5)
            assert hypothesis.log_prob == pytest.approx(log_prob, abs=1e-5)


def greedy_by_hand(model, sentence, *, source_length, limit, penalty):
    log_probs, tokens, before = model.logits[sentence].log_softmax(-1), [], (START, START)
    while len(tokens) < limit:
        row = log_probs[before].clone()
        row[END] -= penalty * source_length / (len(tokens) + 1)
        token = int(row.argmax())
        if token == END:
            break
        tokens.append(token)
        before = (before[1], token)
    return tokens


@pytest.mark.parametrize("penalty", [0.0, 0.3, 3.0])
def test_beam_one_is_greedy(penalty):
    lengths = [3, 4, 9, 6]
    model = Trigrams(4, 6, seed=11)
    found = model.search(lengths, beam=1, eos_penalty=penalty)
    for sentence, length in enumerate(lengths):
        expected = greedy_by_hand(
            model, sentence, source_length=length, limit=2 * length + 10, penalty=penalty
        )
        assert found[sentence][0].tokens == expected
        assert len(found[sentence]) == 1


def conventional_beam(model, sentence, *, source_length, limit, beam, penalty):
    """A beam search over Python lists with the same rules, one sentence, no early stop by the bound."""
    log_probs = model.logits[sentence].log_softmax(-1).tolist()
    alive, finished = [(0.0, [], (START, START))], []
    for step in range(limit + 1):
        options = []
        for score, tokens, before in alive:
            row = log_probs[before[0]][before[1]]
            options.append(
                (score + row[END] - penalty * source_length / (step + 1), score + row[END], tokens, None)
            )
            if step < limit:
                for token in range(END + 1, len(row)):
                    grown = score + row[token]
                    options.append((grown, grown, [*tokens, token], (before[1], token)))
        options.sort(key=lambda item: -item[0])
        for score, log_prob, tokens, before in options[:beam]:
            if before is None:
                finished.append((score / ((5 + len(tokens)) / 6), log_prob, tokens))
        alive = [item[1:] for item in options if item[3] is not None][:beam]
        finished.sort(key=lambda item: -item[0])
        if len(finished) >= beam:
            score, _, tokens = finished[0]
            if not alive or score * (5 + len(tokens)) / 6 >= alive[0][0]:
                break
    return finished


@pytest.mark.parametrize("beam", [2, 3, 5])
def test_narrow_beams_follow_the_stated_rules(beam):
    lengths = [2, 3, 4, 6, 5]
    model = Trigrams(5, 7, seed=5)
    found = model.search(lengths, beam=beam, n_best=1, eos_penalty=0.4)
    for sentence, length in enumerate(lengths):
        expected = conventional_beam(
            model, sentence, source_length=length, limit=2 * length + 10, beam=beam, penalty=0.4
        )
        assert found[sentence][0].tokens == expected[0][2]
        assert found[sentence][0].score == pytest.approx(expected[0][0], abs=1e-5)


@pytest.mark.parametrize(("alpha", "penalty"), [(0.0, 0.0), (1.0, 0.5)])
@pytest.mark.parametrize("beam", [1, 2, 5])
def test_unlikely_ends_do_not_end_the_search(beam, alpha, penalty):
    """2 3 4 … 11 is nearly certain; whatever ends before it does is not."""
    model = Trigrams(1, 12, seed=7, sharpness=0.5)
    model.logits[..., END] += 4.0
    for before in range(12):
        model.logits[:, :, before, {0: 2, 11: END}.get(before, before + 1)] += 14.0
    found = model.search([10], beam=beam, n_best=beam, length_penalty=alpha, eos_penalty=penalty)[0]
    assert found[0].tokens == list(range(2, 12))
    assert found[0].log_prob > -0.01
    assert len(found) == beam


def test_a_batch_is_its_sentences_one_by_one():
    lengths = [1, 7, 3, 3, 5, 2]
    model = Trigrams(6, 70, seed=2)
    together = model.search(lengths, beam=4, n_best=4)
    alone = [model.search(lengths, beam=4, n_best=4, only=[number])[0] for number in range(6)]
    assert together == alone


def test_n_best_is_sorted_and_without_repetition():
    model = Trigrams(3, 9, seed=8)
    for hypotheses in model.search([4, 5, 6], beam=12, n_best=12, eos_penalty=1.0):
        scores = [hypothesis.score for hypothesis in hypotheses]
        texts = [tuple(hypothesis.tokens) for hypothesis in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert len(set(texts)) == len(texts) >= 12
        assert not any(END in text or START in text for text in texts)


def test_a_larger_end_penalty_gives_longer_outputs():
    model = Trigrams(20, 8, seed=4, sharpness=1.0)
    total = [
        sum(len(found[0].tokens) for found in model.search([6] * 20, beam=5, eos_penalty=penalty))
        for penalty in (0.0, 1.0, 5.0)
    ]
    assert total[0] < total[1] < total[2]


def test_finished_sentences_leave_the_batch():
    model = Trigrams(8, 6, seed=1)
    model.search([1, 2, 3, 4, 6, 8, 12, 20], beam=3, eos_penalty=2.0)
    assert model.rows[0] == 8  # one hypothesis each before the first token
    assert model.rows[1] == 24
    assert model.rows[-1] < 24
    assert model.rows[1:] == sorted(model.rows[1:], reverse=True)


def test_the_limit_holds_and_still_ends_the_sentence():
    model = Trigrams(2, 5, seed=6)
    model.logits[..., END] = -30.0  # never wants to stop
    for number, hypotheses in enumerate(model.search([3, 3], limits=[4, 0], beam=3)):
        assert len(hypotheses[0].tokens) == (4, 0)[number]
        assert hypotheses[0].log_prob < -25


@pytest.mark.parametrize("vocabulary", [3, 64, 65, 200])
@pytest.mark.parametrize("as_probs", [False, True])
def test_best_continuations_match_a_full_sort(vocabulary, as_probs):
    random.seed(vocabulary)
    generator = torch.Generator().manual_seed(vocabulary)
    logits = torch.randn(3, 4, vocabulary, generator=generator)
    alive = torch.randn(3, 4, generator=generator)
    alive[1, 2] = -torch.inf
    scores = scores_of(logits, as_probs=as_probs)
    best, hypothesis, token = best_continuations(scores, alive, 10)
    for sentence in range(3):
        every = sorted(
            (
                (float(alive[sentence, row] + logits[sentence, row].log_softmax(0)[column]), row, column)
                for row in range(4)
                for column in range(vocabulary)
            ),
            reverse=True,
        )[:10]
        assert best[sentence].tolist() == pytest.approx([item[0] for item in every], abs=1e-5)
        reachable = [number for number, item in enumerate(every) if item[0] > -math.inf]
        assert [(int(hypothesis[sentence, n]), int(token[sentence, n])) for n in reachable] == [
            (row, column) for _, row, column in (every[n] for n in reachable)
        ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 0}, "beam: expected .* from 1 .* got 0"),
        ({"beam": 1001}, "beam: expected .* to 1000, got 1001"),
        ({"beam": 3, "n_best": 4}, "n-best: expected between 1 and the beam size 3, got 4"),
        ({"n_best": 0}, "n-best"),
        ({"eos_penalty": -1.0}, "penalty: expected 0 to 100"),
        ({"eos_penalty": math.nan}, "end-of-sentence penalty: expected 0 to 100, got nan"),
        ({"eos_penalty": math.inf}, "end-of-sentence penalty: expected 0 to 100, got inf"),
        ({"length_penalty": math.nan}, "length penalty: expected a number from -10 to 10, got nan"),
        ({"length_penalty": -math.inf}, "length penalty: expected a number from -10 to 10, got -inf"),
        ({"max_length_factor": 0.0}, "factor"),
        ({"max_length_factor": math.nan}, "factor: expected more than 0 .* got nan"),
        ({"max_length_factor": 1e9}, "factor: expected more than 0 and up to 100"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        SearchOptions(**options)
