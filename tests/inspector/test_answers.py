"""Questions over HTTP to memory and VQA runs: the command line's answers, and no path from a client."""

import json
import shutil

import pytest

from latentalign.inspector.app import build_app
from latentalign.inspector.images import find_pictures
from latentalign.inspector.runs import load_runs
from latentalign.task import CanAnswer
from tests.cli.command import latentalign
from tests.inspector.serving import assert_refused, serving

STORY = ["Mary went to the kitchen.", "John moved to the garden.", "Mary took the ball there."]
QUESTION = "Where is Mary?"


@pytest.fixture(scope="module")
def place(asked_folders):
    return asked_folders[0].parent


@pytest.fixture
def asked(site):
    return site


def known_answer(asked, task):
    assets = asked.service.runs.find(task, CanAnswer).run.assets
    found = assets.vocabulary.answers if task == "memory" else assets.answers.answers
    return next(answer for answer in found if answer.isalpha())


@pytest.mark.parametrize("inference", [None, "kmax:1", "sample:4", "soft"])
def test_a_story_is_read_as_by_the_command_line(asked, place, tmp_path, inference):
    story = tmp_path / "story.txt"
    story.write_text("\n".join(STORY) + "\n", encoding="utf-8")
    answer = known_answer(asked, "memory")
    options = [] if inference is None else ["--inference", inference]
    told = latentalign(
        "answer",
        place / "memory",
        "--question",
        QUESTION,
        "--story",
        story,
        "--answer",
        answer,
        "--json",
        *options,
    )
    assert told.code == 0, told.stderr
    expected = json.loads(told.stdout)
    found = asked.asked("api/answer", question=QUESTION, story=STORY, answer=answer, inference=inference)
    assert found["answers"] == expected["answers"]
    assert [one["text"] for one in found["evidence"]] == STORY
    for got, wanted in zip(found["evidence"], expected["evidence"], strict=True):
        assert {name: got[name] for name in wanted} == wanted
    assert len(found["evidence"][0]["hops"]) == 2
    assert found["evidence"][0]["posterior"] is not None


def test_an_image_is_looked_at_as_by_the_command_line(asked, place):
    answer = known_answer(asked, "vqa")
    (image,) = [run["images"][-1] for run in asked.client.get("api/runs").json()["runs"] if run["images"]]
    features = place / "scenes" / "features"
    question = "What colour is the circle?"
    told = latentalign(
        "answer", place / "vqa", "--question", question, "--features", features, "--image", image,
        "--answer", answer, "--json",
    )  # fmt: skip
    assert told.code == 0, told.stderr
    expected = json.loads(told.stdout)
    found = asked.asked("api/answer", run="vqa", question=question, image=image, answer=answer)
    assert found["answers"] == expected["answers"]
    assert [(one["box"], one["prior"], one["posterior"]) for one in found["evidence"]] == [
        (one["box"], one["prior"], one["posterior"]) for one in expected["evidence"]
    ]
    assert found["size"] == expected["size"]
    assert found["picture"] is True


def test_pictures_come_by_number_only(asked, place):
    picture = asked.client.get("api/image", params={"image": 1})
    assert picture.headers["content-type"] == "image/png"
    assert picture.content == (place / "scenes" / "images" / "000000000001.png").read_bytes()
    assert_refused(asked.client.get("api/image", params={"image": 99}), 404, "99")
    assert_refused(asked.client.get("api/image", params={"image": "../1"}), 422)
    assert_refused(asked.client.get("api/image", params={"image": 1, "run": "../vqa"}), 422)


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        ({"question": QUESTION}, ["story", "empty"]),
        ({"question": " ", "story": STORY}, ["question", "no word"]),
        ({"question": QUESTION, "story": STORY, "answer": "zzz"}, ["zzz", "never an answer"]),
        ({"question": QUESTION, "story": STORY, "image": 1}, ["image", "story"]),
        ({"question": QUESTION, "run": "vqa"}, ["image", "5 numbers"]),
        ({"question": QUESTION, "run": "vqa", "image": 77}, ["image", "77"]),
        ({"question": QUESTION, "run": "vqa", "story": STORY}, ["story"]),
        ({"question": QUESTION, "run": "vqa", "image": 1, "answer": "zzz"}, ["zzz", "not among"]),
        ({"question": QUESTION, "story": ["1 A.", "1 B."]}, ["one story", "2"]),
    ],
)
def test_mistakes_are_told_without_paths(asked, place, body, parts):
    error = assert_refused(asked.post("api/answer", **body), 422, *parts)
    assert str(place) not in error["message"]
    assert "--" not in error["message"]


def test_unknown_words_are_named_and_not_logged(asked, caplog):
    found = asked.asked("api/answer", question=QUESTION, story=[*STORY, "Xylophone hums."])
    assert "xylophone" in found["unknown_words"]
    assert "xylophone" not in caplog.text.lower()


def test_without_features_a_run_is_served_but_cannot_be_asked(place, tmp_path):
    shutil.copytree(place / "vqa", tmp_path / "vqa")
    content = (tmp_path / "vqa" / "vqa.json").read_text(encoding="utf-8")
    (tmp_path / "vqa" / "vqa.json").write_text(content.replace(str(place / "scenes"), str(tmp_path / "gone")))
    with serving(build_app(load_runs([tmp_path / "vqa"]))) as site:
        assert site.client.get("api/runs").json()["runs"][0]["images"] == []
        assert_refused(site.post("api/answer", question=QUESTION, image=1), 422, "features")
    features = place / "scenes" / "features"
    runs = load_runs([tmp_path / "vqa"], features=features, images=place / "scenes" / "images")
    with serving(build_app(runs)) as site:
        assert site.asked("api/answer", question=QUESTION, image=1)["picture"] is True


def test_pictures_are_named_by_their_numbers(tmp_path):
    for name in (
        "COCO_val2014_000000000042.jpg",
        "7.PNG",
        "notes.txt",
        "x.png",
        "0000000000000000000001.png",
    ):
        (tmp_path / name).touch()
    assert {number: path.name for number, path in find_pictures(tmp_path).items()} == {
        42: "COCO_val2014_000000000042.jpg", 7: "7.PNG"
    }  # fmt: skip
    assert find_pictures(tmp_path / "missing") == {}
