"""Printed scores against exact ones: never higher, and lower by as little as the documentation says."""

import pytest
from benchmarks.scores import pair_errors, summary, translation_errors

import latentalign as la
from tests.cli.command import untrained_run
from tests.translation.tiny import SENTENCES, TARGETS

ROUNDING = 2e-4  # of sums of logarithms in single precision


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return la.load(untrained_run(tmp_path_factory.mktemp("scores") / "run"), device="cpu")


def test_scores_of_translations(run):
    errors = translation_errors(run, SENTENCES[:6], beam=3)
    found = summary(errors)
    assert found["count"] == sum(bool(line.split()) for line in SENTENCES[:6])
    assert found["least"] > -ROUNDING
    assert found["most"] < 2e-3 * 40  # at most the search's tolerance a step


def test_scores_of_pairs(run):
    errors = pair_errors(run, list(zip(SENTENCES[:6], TARGETS[:6], strict=True)))
    assert min(errors) > -ROUNDING
    assert max(errors) < 1e-3


def test_an_error_would_be_seen(run, monkeypatch):
    """With a tenth of the probability left out, the scores are wrong and the measurement says so."""
    from latentalign.translation import align

    monkeypatch.setattr(align, "_PRUNE", 0.5)
    assert max(pair_errors(run, list(zip(SENTENCES[:6], TARGETS[:6], strict=True)))) > 1e-3
