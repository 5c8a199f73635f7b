"""Several runs together by the command line and by `load`."""

import json
import math

import pytest

import latentalign as la
from latentalign.errors import UserError
from latentalign.files import write_atomic
from tests.cli.command import assert_mistake, latentalign, untrained_run
from tests.translation.tiny import SENTENCES, TARGETS

FAST = ("--beam", 2, "--max-length-factor", 0.5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    untrained_run(folder / "one")
    untrained_run(folder / "two", objective="soft", decoder_size=10)
    (folder / "text.de").write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    (folder / "text.en").write_text("\n".join(TARGETS) + "\n", encoding="utf-8")
    return folder


def test_runs_of_different_models_translate_together(folder):
    found = latentalign("translate", folder / "one", folder / "two", *FAST, "--input", folder / "text.de")
    assert (found.code, found.stderr) == (0, "")
    assert found.stdout.count("\n") == len(SENTENCES)
    run = la.load([folder / "one", folder / "two"], device="cpu")
    assert isinstance(run, la.Ensemble)
    texts = [one.text for one in run.translate(SENTENCES[:1], beam=2)]
    assert len(texts) == 1
    with pytest.raises(UserError, match=r"one, .*two: an ensemble, which has no links of its own"):
        run.translate(SENTENCES[:1], alignments=True)
    with pytest.raises(UserError, match="an ensemble, which does not align"):
        run.align([(SENTENCES[0], TARGETS[0])])


def test_the_likelihood_is_that_of_the_mean(folder):
    data = ("--source", folder / "text.de", "--target", folder / "text.en", "--json")
    runs = [folder / "one", folder / "two"]
    together = json.loads(latentalign("evaluate", *runs, *data).stdout)
    alone = [json.loads(latentalign("evaluate", run, *data).stdout)["nll"] for run in runs]
    assert together["members"] == 2
    assert together["nll"] < sum(alone) / 2  # Jensen
    assert together["nll"] > min(alone) - math.log(2)
    (folder / "gap.de").write_text("\n".join((SENTENCES[0], "")) + "\n", encoding="utf-8")
    (folder / "gap.en").write_text("\n".join(TARGETS[:2]) + "\n", encoding="utf-8")
    gap = ("--source", folder / "gap.de", "--target", folder / "gap.en", "--json")
    assert json.loads(latentalign("evaluate", *runs, *gap).stdout)["pairs_left_out"] == 1
    assert "pairs_left_out" not in together
    twice = json.loads(latentalign("evaluate", runs[0], runs[0], *data).stdout)
    assert twice["nll"] == pytest.approx(alone[0], abs=1e-6)


def test_runs_of_different_target_vocabularies_are_refused(folder):
    other = untrained_run(folder / "three")
    path = other / "vocabulary.json"
    described = json.loads(path.read_text(encoding="utf-8"))
    described["target"]["pieces"][-1], described["target"]["pieces"][-2] = described["target"]["pieces"][-2:]
    write_atomic(path, json.dumps(described))
    found = latentalign("translate", folder / "one", other, *FAST, "--input", folder / "text.de")
    assert_mistake(found, "three", "another target vocabulary", "one")
    with pytest.raises(UserError, match="expected at least one run"):
        la.load([])


def test_several_runs_have_no_links(folder):
    found = latentalign(
        "translate",
        folder / "one",
        folder / "two",
        "--input",
        folder / "text.de",
        "--alignments",
        folder / "l",
    )
    assert_mistake(found, "--alignments", "--aligner")
