"""`latentalign plot`: a pair or a run's curves, into a file whose name says how."""

import json

import pytest

from latentalign.wordalign.aligner import Aligner
from tests.cli.command import assert_mistake, latentalign, untrained_run
from tests.translation.tiny import SENTENCES, TARGETS

PAIR = ("--source", SENTENCES[0], "--target", TARGETS[0])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return untrained_run(tmp_path_factory.mktemp("runs") / "run")


def test_prior_and_posterior_side_by_side(run, tmp_path):
    picture = tmp_path / "pair.svg"
    found = latentalign("plot", run, *PAIR, "--links", "0-0 2-2", "--output", picture)
    assert (found.code, found.stdout) == (0, "")
    svg = picture.read_text(encoding="utf-8")
    for word in ("prior", "posterior", "Wiese", "meadow"):
        assert word in svg


def test_a_soft_run_shows_its_prior_and_its_own_translation(tmp_path):
    soft = untrained_run(tmp_path / "soft", objective="soft")
    picture = tmp_path / "pair.svg"
    assert latentalign("plot", soft, "--source", "ja", "--output", picture).code == 0
    svg = picture.read_text(encoding="utf-8")
    assert "prior" in svg
    assert "posterior" not in svg


def test_an_aligner_shows_both_directions_and_its_links(tmp_path):
    folder, picture = tmp_path / "aligner", tmp_path / "pair.svg"
    Aligner.fit(list(zip(SENTENCES, TARGETS, strict=True))).save(folder)
    assert latentalign("plot", folder, *PAIR, "--links", "0-0", "--output", picture).code == 0
    svg = picture.read_text(encoding="utf-8")
    for word in ("target given source", "source given target", "links", "Wiese", "meadow"):
        assert word in svg
    alone = latentalign("plot", folder, "--source", "ja", "--output", picture)
    assert_mistake(alone, "is an aligner, which does not translate", "--target")
    assert_mistake(latentalign("plot", folder, "--curves", "--output", picture))


def test_curves(run, tmp_path):
    record = {"epoch": 1.0, "nll": 2.0, "ppl": 7.4, "prior_entropy": 1.0, "learning_rate": 0.001}
    (run / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    assert latentalign("plot", run, "--curves", "--output", tmp_path / "curves.pdf").code == 0
    assert (tmp_path / "curves.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ((*PAIR, "--output", "a.gif"), "ending in .png, .svg or .pdf"),
        (("--output", "a.png"), "--curves"),
        ((*PAIR, "--curves", "--output", "a.png"), "either"),
        (("--source", " ", "--target", "a", "--output", "a.png"), "at least one word"),
        ((*PAIR, "--links", "0-99", "--output", "a.png"), "link 0-99 does not fit"),
        ((*PAIR, "--links", "zero", "--output", "a.png"), "--links: expected links"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(run, options, part, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_mistake(latentalign("plot", run, *options), part)
    assert list(tmp_path.iterdir()) == []
