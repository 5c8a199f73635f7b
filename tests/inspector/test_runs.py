"""Runs by name."""

from pathlib import Path

import pytest

from latentalign.errors import UserError
from latentalign.inspector.limits import Refused
from latentalign.inspector.runs import ServedRuns, load_runs, names_of
from latentalign.task import CanAnswer, CanAnswerFromImages, CanTranslate


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
