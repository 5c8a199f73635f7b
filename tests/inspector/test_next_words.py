"""What the translator would say next, under several ways to predict."""

import pytest
import torch

from latentalign.alignment.registry import parse_inference
from latentalign.inspector.next_words import next_words
from latentalign.training.trained_run import load
from latentalign.translation.data.dataset import make_batch
from latentalign.translation.data.tokenizer import END, PAD, START
from tests.translation.tiny import SENTENCES, TARGETS

SOURCE, PREFIX = SENTENCES[0], "a small dog"


def ask(run, *inferences, source=SOURCE, prefix=PREFIX, top=5):
    predictors = [(text, parse_inference(text)) for text in inferences]
    return next_words(run, "run", source, prefix, predictors, top=top, seed=0)


@pytest.fixture(scope="module")
def run(folders):
    return load(folders[0])


@pytest.mark.parametrize("inference", ["exact", "kmax:2", "soft"])
def test_it_is_the_model_s_predictive_distribution(run, inference):
    found = ask(run, inference, top=200)
    pieces = [*run.assets.target.encode(PREFIX), END]
    batch = make_batch([run.assets.encode_source(SOURCE)[0]], [pieces])
    with torch.no_grad():
        problem = run.model.problem(batch)
        log_probs = parse_inference(inference).log_probs(problem.prior, problem.likelihood)[0, -1].double()
    expected = log_probs.exp()
    expected[[PAD, START]] = 0.0  # which no sentence contains
    got = torch.tensor(sorted(found.distributions[0].probabilities, reverse=True), dtype=torch.double)
    assert len(got) == len(expected)
    assert torch.allclose(got, expected.sort(descending=True).values, atol=1e-6)


def test_all_positions_are_exact_and_one_is_not(run):
    found = ask(run, "exact", "kmax:1", "kmax:99", "soft")
    exact, one, all_of_them, soft = found.distributions
    assert exact.distance == 0
    assert all_of_them.distance == pytest.approx(0, abs=1e-6)
    assert one.distance > 0.01
    assert soft.distance > 0.001
    assert found.positions == len(run.assets.encode_source(SOURCE)[0])


def test_every_way_has_a_number_for_every_listed_word(run):
    found = ask(run, "exact", "kmax:1", top=3)
    assert 3 <= len(found.words) <= 6
    assert all(len(way.probabilities) == len(found.words) for way in found.distributions)
    first = found.distributions[0].probabilities
    assert first == sorted(first, reverse=True)


def test_the_prior_is_the_row_of_the_matrix(run, site):
    found = site.asked("api/next", source=SOURCE, prefix=" ".join(TARGETS[0].split()[:1]))
    aligned = site.asked("api/align", pairs=[{"source": SOURCE, "target": TARGETS[0]}], matrices=True)
    row = aligned["results"][0]["matrices"]["prior"][1]
    pieces = len(run.assets.target.encode_word(TARGETS[0].split()[1]))
    if pieces == 1:  # the row of a word is the mean over its pieces
        assert found["prior"] == pytest.approx(row, abs=1e-5)
    assert sum(found["prior"]) <= 1 + 1e-6


def test_pieces_say_whether_they_start_a_word_or_end_the_sentence(run):
    words = ask(run, "exact", top=200).words
    assert sum(word.is_end for word in words) == 1
    assert any(word.starts_word and not word.is_end for word in words)
    assert any(not word.starts_word for word in words)


def test_samples_are_seeded_and_relaxed_runs_take_them(folders):
    relaxed = load(folders[2])
    first, again = ask(relaxed, "soft", "sample:4"), ask(relaxed, "soft", "sample:4")
    assert first == again
    assert first.distributions[1].distance > 0


def test_the_beginning_of_a_sentence(run):
    assert len(ask(run, "exact", prefix="").words) == 5
