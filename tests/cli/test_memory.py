"""Memory networks through the command line: a user's mistakes, and a small world from training to an answer."""

import json
from pathlib import Path

import pytest

from tests.cli.command import assert_mistake, latentalign

BAD_STORIES = {
    "question before any fact": ("1 Where is Mary?\tkitchen\t1\n", "line 1: question before any fact"),
    "support that does not exist": ("1 A b.\n2 Where?\tc\t7\n", "line 2: supporting fact 7 does not exist"),
    "numbering that does not restart": ("1 A b.\n2 Where?\tc\t1\n5 D e.\n", "line 3: expected number 3"),
    "empty story": ("\n", "empty story"),
}


def recipe(folder: Path, stories: Path | None = None, *, epochs: int = 1) -> Path:
    path = folder / "recipe.yaml"
    data = (
        f"{{stories: [{stories}]}}"
        if stories
        else "{worlds: {stories: 60, kinds: [one-fact], facts: [4, 5]}}"
    )
    path.write_text(
        f"task: memory\ndata: {data}\nmodel: {{size: 8, hops: 2, inference_size: 8}}\nobjective: variational\n"
        f"training: {{epochs: {epochs}, accelerator: cpu}}\n"
    )
    return path


@pytest.mark.parametrize("kind", BAD_STORIES)
def test_bad_stories_are_one_line_and_exit_code_2(kind: str, tmp_path: Path) -> None:
    text, message = BAD_STORIES[kind]
    stories = tmp_path / "stories.txt"
    stories.write_text(text)
    assert_mistake(latentalign("check", recipe(tmp_path, stories)), str(stories), message)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("memory")
    outcome = latentalign("train", recipe(folder), "--out", folder / "run")
    assert outcome.code == 0, outcome.stderr
    return folder / "run"


def test_evaluate_reports_accuracy_and_attention(run: Path) -> None:
    outcome = latentalign("evaluate", run, "--data", run / "stories", "--split", "valid", "--json")
    assert outcome.code == 0, outcome.stderr
    found = json.loads(outcome.stdout)
    assert found["task"] == "memory"
    assert found["inference"] == "exact"
    assert 0 <= found["accuracy"] <= 1
    assert {
        "nll",
        "prior_entropy",
        "elbo",
        "kl",
        "attention_accuracy",
        "posterior_attention_accuracy",
    } <= set(found)
    assert found["accuracy by pattern: where is …"] == pytest.approx(found["accuracy"])


def test_a_story_longer_than_the_memory_and_unknown_words_are_told_once(run: Path, tmp_path: Path) -> None:
    stories = tmp_path / "long.txt"
    facts = [f"{number} Zora walked to the attic." for number in range(1, 61)]
    stories.write_text(
        "\n".join([*facts, "61 Where is Ada?\tattic\t60", "62 Where is Ada?\tattic\t60"]) + "\n"
    )
    outcome = latentalign("evaluate", run, "--data", stories, "--json")
    assert outcome.code == 0, outcome.stderr
    assert json.loads(outcome.stdout)["unknown_word_share"] > 0


def test_answer_shows_the_facts(run: Path, tmp_path: Path) -> None:
    story = tmp_path / "story.txt"
    story.write_text("Ada walked to the attic.\nBoris ran to the market.\n")
    outcome = latentalign("answer", run, "--story", story, "--question", "Where is Ada?", "--json")
    assert outcome.code == 0, outcome.stderr
    found = json.loads(outcome.stdout)
    assert [entry["text"] for entry in found["evidence"]] == [
        "Ada walked to the attic.",
        "Boris ran to the market.",
    ]
    assert sum(entry["prior"] for entry in found["evidence"]) == pytest.approx(1.0)
    plain = latentalign("answer", run, "--story", story, "--question", "Where is Ada?")
    assert "Ada walked to the attic." in plain.stdout


def test_answer_needs_a_story(run: Path, tmp_path: Path) -> None:
    assert_mistake(latentalign("answer", run, "--question", "Where is Ada?"), "needs --story")
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    assert_mistake(latentalign("answer", run, "--story", empty, "--question", "Where?"), "empty story")


def test_the_digits_recipe_is_sound() -> None:
    assert latentalign("check", "gaussian-digits").code == 0


@pytest.mark.parametrize(
    "name", ["end-to-end", "supervised", "dynamic", "marginal", "hard", "variational", "path"]
)
def test_every_memory_recipe_is_sound(name: str) -> None:
    outcome = latentalign("check", f"memory-{name}", "--set", "data.worlds.stories=40")
    assert outcome.code == 0, outcome.stderr
