"""The task as the trainer, `evaluate` and `answer` use it."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from latentalign.alignment import Exact
from latentalign.errors import UserError
from latentalign.memory.config import MemoryDataConfig, MemoryModelConfig
from latentalign.memory.model import MemoryModel
from latentalign.memory.stories import format_story, read_stories
from latentalign.memory.task import MemoryAssets, MemoryTask, split_stories
from latentalign.memory.worlds import WorldsConfig, tell_stories

TASK = MemoryTask()
STORIES = tell_stories(WorldsConfig(stories=40), seed=1)


def write(path: Path, stories: Any) -> Path:
    path.write_text("".join(f"{line}\n" for story in stories for line in format_story(story)))
    return path


def prepare(folder: Path, data: dict[str, Any], **model: Any) -> tuple[Any, list[str]]:
    said: list[str] = []
    folder.mkdir(exist_ok=True)
    prepared = TASK.prepare(
        MemoryDataConfig(**data), MemoryModelConfig(**model), folder=folder, seed=1, log=said.append
    )
    return prepared, said


def test_worlds_are_told_held_out_and_written(tmp_path: Path) -> None:
    prepared, said = prepare(tmp_path, {"worlds": {"stories": 40}})
    assert len(read_stories([tmp_path / "stories" / "train.txt"])) == 36
    assert len(read_stories([tmp_path / "stories" / "valid.txt"])) == 4
    assert TASK.load_assets(tmp_path) == prepared.assets
    assert any("36 stories" in line for line in said)
    again = TASK.dataset(prepared.assets, TASK.choose_data(data=tmp_path / "stories", split="valid"))
    assert len(again) == len(prepared.valid)


def test_files_are_split_by_story_and_the_same_part_is_found_again(tmp_path: Path) -> None:
    stories = write(tmp_path / "all.txt", STORIES)
    prepared, _ = prepare(tmp_path / "run", {"stories": [stories], "held_out": 0.25})
    assert len(prepared.train) + len(prepared.valid) == sum(len(story.questions) for story in STORIES)
    again = TASK.dataset(prepared.assets, TASK.choose_data(data=stories, split="held-out"))
    assert [example.place for example in again.examples] == [
        example.place for example in prepared.valid.examples
    ]
    assert prepared.assets.batches == len(prepared.train.plan(0, 1))


def test_split_keeps_whole_stories() -> None:
    rest, held_out = split_stories(STORIES, 0.1, 7)
    assert len(held_out) == 4
    assert len(rest) == 36
    assert not {id(story) for story in rest} & {id(story) for story in held_out}
    assert split_stories(STORIES, 0.1, 7)[1] == held_out
    assert split_stories(STORIES, 0.1, 8)[1] != held_out
    with pytest.raises(UserError, match="at least 2 stories"):
        split_stories(STORIES[:1], 0.1, 1)


def test_splits_by_name(tmp_path: Path) -> None:
    write(tmp_path / "qa1_train.txt", STORIES[:10])
    write(tmp_path / "qa1_test.txt", STORIES[10:14])
    prepared, _ = prepare(
        tmp_path / "run", {"stories": [tmp_path / "*train*"], "valid": [tmp_path / "*test*"]}
    )
    assert len(TASK.dataset(prepared.assets, TASK.choose_data(data=tmp_path, split="test"))) == len(
        prepared.valid
    )
    with pytest.raises(UserError, match=r"--split dev: no file .*qa1_test\.txt"):
        TASK.dataset(prepared.assets, TASK.choose_data(data=tmp_path, split="dev"))
    with pytest.raises(UserError, match="needs --data"):
        TASK.dataset(prepared.assets, TASK.choose_data())


def test_what_is_dropped_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = ["1 A b.", "2 C d.", "3 Who?\tA\t1", "1 No question here.", "1 E f.", "2 Who?\tE\t1"]
    path = tmp_path / "a.txt"
    path.write_text("\n".join(lines))
    _, said = prepare(tmp_path / "run", {"stories": [path], "valid": [path], "memory": 1})
    assert "training: 1 stories without a question are not used" in said
    assert sum("newest facts are kept" in line for line in said) == 2  # once for each part
    other = tmp_path / "other.txt"
    other.write_text("1 Zoe slept.\n2 Who?\tA\t1\n")
    with caplog.at_level(logging.WARNING):
        TASK.dataset(TASK.load_assets(tmp_path / "run"), TASK.choose_data(data=other))
    assert "2 words are not in the vocabulary and say nothing: zoe, slept" in caplog.text


def test_supervision_needs_supporting_facts(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("1 A b.\n2 Who?\tA\n1 C d.\n2 Who?\tC\n")
    with pytest.raises(UserError, match="expected supporting facts after the answers"):
        prepare(tmp_path / "run", {"stories": [path]}, kind="supervised", facts="likelihood")
    prepare(tmp_path / "run", {"stories": [path]})


def test_stories_without_any_question_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("1 A b.\n1 C d.\n")
    with pytest.raises(UserError, match="hold no question"):
        prepare(tmp_path / "run", {"stories": [path]})


def test_damaged_assets_are_named(tmp_path: Path) -> None:
    (tmp_path / "memory.json").write_text('{"words": []}')
    with pytest.raises(UserError, match=r"memory\.json: damaged"):
        TASK.load_assets(tmp_path)


@pytest.fixture
def trained(tmp_path: Path) -> tuple[MemoryModel, MemoryAssets, Path]:
    prepared, _ = prepare(tmp_path, {"worlds": {"stories": 40}})
    torch.manual_seed(0)
    model = TASK.build_model(MemoryModelConfig(size=8), prepared.assets, needs_posterior=True).eval()
    story = tmp_path / "story.txt"
    story.write_text("Ada went to the attic.\nBoris ran to the market.\n")
    return model, prepared.assets, story


def ask(trained: tuple[MemoryModel, MemoryAssets, Path], **request: Any) -> dict[str, Any]:
    model, assets, story = trained
    with torch.no_grad():
        return TASK.answer(model, assets, {"story": story, **request}, predictor=Exact(), top=3)


def test_answers_come_with_the_facts_they_used(trained: Any) -> None:
    result = ask(trained, question="Where is Ada?")
    assert len(result["answers"]) == 3
    assert result["answers"][0]["probability"] >= result["answers"][1]["probability"]
    assert [entry["text"] for entry in result["evidence"]] == [
        "Ada went to the attic.",
        "Boris ran to the market.",
    ]
    for hop in range(3):
        assert sum(entry["hops"][hop] for entry in result["evidence"]) == pytest.approx(1.0)
    assert result["evidence"][0]["prior"] == result["evidence"][0]["hops"][-1]
    assert "posterior" not in result["evidence"][0]
    json.dumps(result)


def test_a_known_answer_shows_the_posterior(trained: Any) -> None:
    evidence = ask(trained, question="Where is Ada?", answer="Attic")["evidence"]
    assert sum(entry["posterior"] for entry in evidence) == pytest.approx(1.0)


def test_unknown_words_of_a_question_are_told(trained: Any) -> None:
    assert ask(trained, question="Where is Zoe?")["unknown_words"] == ["zoe"]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"question": "?"}, "--question holds no word"),
        ({"question": "Where?", "image": 3}, "--image means nothing to a memory run"),
        ({"question": "Where?", "answer": "moon"}, "--answer 'moon' was never an answer"),
    ],
)
def test_bad_questions_are_refused(trained: Any, request_: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ask(trained, **request_)


def test_a_story_is_needed(trained: Any) -> None:
    model, assets, _ = trained
    with pytest.raises(UserError, match="needs --story FILE"):
        TASK.answer(model, assets, {"question": "Where is Ada?"}, predictor=Exact())


def test_only_the_newest_facts_are_evidence(trained: Any, tmp_path: Path) -> None:
    model, assets, _ = trained
    long = tmp_path / "long.txt"
    long.write_text("Ada went to the attic.\n" * 60 + "Boris ran to the market.\n")
    result = TASK.answer(model, assets, {"question": "Where is Boris?", "story": long}, predictor=Exact())
    assert len(result["evidence"]) == 50
    assert result["evidence"][-1]["text"] == "Boris ran to the market."
