"""Runs by name."""

from pathlib import Path

import pytest

from latentalign.errors import UserError
from latentalign.inspector.limits import Refused
from latentalign.inspector.runs import ServedRuns, load_runs, names_of
from latentalign.task import CanAnswer, CanAnswerFromImages, CanTranslate
from latentalign.training.loop.evaluation import RELAXED_INFERENCE
from tests.inspector.untrained import untrained_memory_run


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (["runs/soft", "runs/variational"], ["soft", "variational"]),
        (["a/soft", "b/soft", "b/hard"], ["a-soft", "b-soft", "hard"]),
        (["a/soft", "a/soft"], ["a-soft", "a-soft-2"]),
    ],
)
def test_names_are_short_and_different(folders, names):
    found = names_of([Path("/somewhere") / folder for folder in folders])
    assert len(set(found)) == len(found)
    if folders[0] != folders[1]:
        assert found == names


def test_the_first_that_fits_is_the_default(runs):
    assert runs.find(None, CanTranslate).name == "variational"
    assert runs.find(None, CanAnswer).name == "memory"
    assert runs.find(None, CanAnswerFromImages).name == "vqa"
    with pytest.raises(Refused, match="no run that can answer questions about pictures is served"):
        ServedRuns([runs.find("soft", CanTranslate)]).find(None, CanAnswerFromImages)
    with pytest.raises(Refused, match=r"soft is a run of task translation; expected one of memory, vqa$"):
        runs.find("soft", CanAnswer)


def test_a_long_wrong_name_is_not_given_back_whole(runs):
    with pytest.raises(Refused) as caught:
        runs.find("x" * 1000, CanTranslate)
    assert len(caught.value.detail) < 200


def test_a_server_needs_a_run(tmp_path):
    with pytest.raises(UserError, match="at least one run folder"):
        ServedRuns([])
    with pytest.raises(UserError, match="no such run folder"):
        load_runs([tmp_path / "missing"])


@pytest.mark.parametrize(
    ("objective", "distribution", "inference"),
    [
        ("soft", "categorical", "soft"),
        ("marginal", "categorical", "exact"),
        ("variational", "dirichlet", RELAXED_INFERENCE),
    ],
)
def test_a_run_answers_as_it_was_trained_to(objective, distribution, inference, tmp_path):
    folder = untrained_memory_run(tmp_path / "run", objective=objective, distribution=distribution)
    served = load_runs([folder]).find(None, CanAnswer)
    assert served.info.inference == inference
    assert inference.split(":")[0] in served.info.inferences
    assert ("exact" in served.info.inferences) == (distribution == "categorical")
    question, story = "where is mary ?", ["mary went to the garden", "john went to the office"]
    found = served.run.answer(question, story=story)
    assert found == served.run.answer(question, story=story, inference=inference)
    if inference != "exact" and distribution == "categorical":
        assert found != served.run.answer(question, story=story, inference="exact")
