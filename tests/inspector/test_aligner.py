"""An aligner beside runs on one server: it aligns and scores, and says what it does not do."""

import numpy as np
import pytest

from latentalign.inspector.app import build_app
from latentalign.inspector.runs import load_runs
from latentalign.wordalign.aligner import Aligner
from tests.cli.command import latentalign
from tests.inspector.serving import assert_refused, serving
from tests.translation.tiny import SENTENCES, TARGETS

PAIRS = [{"source": left, "target": right} for left, right in zip(SENTENCES, TARGETS, strict=True)]


def test_it_is_listed_as_what_it_is(site):
    (info,) = [run for run in site.client.get("api/runs").json()["runs"] if run["task"] == "aligner"]
    assert (info["name"], info["by"], info["inferences"]) == ("aligner", ["posterior"], [])


def test_links_are_those_of_the_command_line(site, aligner_folder, tmp_path):
    source, target = tmp_path / "text.de", tmp_path / "text.en"
    source.write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    target.write_text("\n".join(TARGETS) + "\n", encoding="utf-8")
    told = latentalign("align", aligner_folder, "--source", source, "--target", target, "--scores")
    assert told.code == 0, told.stderr
    found = site.asked("api/align", run="aligner", pairs=PAIRS, scores=True, matrices=True)
    rows = [f"{result['pharaoh']}\t{result['score']:.4f}" for result in found["results"]]
    assert rows == told.stdout.splitlines()
    assert found["by"] == "posterior"


def test_matrices_are_the_aligner_s_own(site, aligner_folder):
    expected = list(Aligner.load(aligner_folder).align(zip(SENTENCES, TARGETS, strict=True)))
    found = site.asked("api/align", run="aligner", pairs=PAIRS, matrices=True)["results"]
    for one, result in zip(expected, found, strict=True):
        np.testing.assert_allclose(result["matrices"]["posterior"], one.probs, rtol=1e-6)
        assert result["matrices"]["prior"] is None
        assert len(result["matrices"]["entropy"]["posterior"]) == len(one.target_words)
    scores = site.asked("api/score", run="aligner", pairs=PAIRS)["results"]
    assert [one["score"] for one in scores] == pytest.approx([one.score for one in expected])


def test_a_threshold_chooses_and_an_empty_side_has_nothing(site):
    every = site.asked("api/align", run="aligner", pairs=PAIRS[:1], threshold=1e-9)["results"][0]["links"]
    best = site.asked("api/align", run="aligner", pairs=PAIRS[:1])["results"][0]["links"]
    assert len(every) > len(best) > 0
    empty = {"source": "", "target": "yes"}
    (found,) = site.asked("api/align", run="aligner", pairs=[empty], scores=True, matrices=True)["results"]
    assert (found["links"], found["score"]) == ([], None)


@pytest.mark.parametrize(
    ("path", "body", "parts"),
    [
        ("api/translate", {"sentences": ["ja"]}, ("aligner is an aligner", "variational")),
        ("api/next", {"source": "ja"}, ("aligner is an aligner", "variational")),
        ("api/answer", {"question": "who"}, ("aligner is an aligner",)),
        ("api/align", {"pairs": PAIRS, "by": "exact"}, ("by:", "an aligner", "exact")),
        ("api/score", {"pairs": PAIRS, "inference": "exact"}, ("inference:", "is an aligner")),
    ],
)
def test_what_needs_a_translator_is_refused(site, path, body, parts):
    assert_refused(site.post(path, run="aligner", **body), 422, *parts)


def test_a_server_of_aligners_alone(aligner_folder):
    with serving(build_app(load_runs([aligner_folder]))) as site:
        assert site.asked("api/align", pairs=PAIRS)["run"] == "aligner"
        assert_refused(site.post("api/translate", sentences=["ja"]), 422, "no run that can translate")
