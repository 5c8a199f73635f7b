"""`latentalign prepare`: a recipe's data, converted once."""

from pathlib import Path

import pytest
import yaml

from latentalign.translation.generated.corpus import write_corpus
from latentalign.translation.task import TranslationTask
from tests.cli.command import assert_mistake, latentalign


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    write_corpus(data, sizes={"train": 40, "valid": 10})
    path = tmp_path / "recipe.yaml"
    values = {
        "task": "translation",
        "data": {
            "folder": str(data),
            "train": {"source": "train.de", "target": "train.en"},
            "valid": {"source": "valid.de", "target": "valid.en"},
            "tokenizer": {"size": 400},
        },
    }
    path.write_text(yaml.safe_dump(values))
    return path


def test_prepared_files_are_what_the_recipe_trains_on(recipe: Path, tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    result = latentalign("prepare", recipe, "--to", shards)
    assert result.code == 0, result.stderr
    assert result.stdout.strip() == str(shards)
    assert "train.de and train.en: read 40 pairs, kept 40, dropped none" in result.stderr
    config = TranslationTask.DataConfig.model_validate(
        {**yaml.safe_load(recipe.read_text())["data"], "prepared": str(shards)}
    )
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    prepared = TranslationTask().prepare(
        config, TranslationTask.ModelConfig(), folder=run_folder, seed=1, log=lambda _: None
    )
    assert len(prepared.train) == 40


def test_a_folder_with_something_in_it_is_left_alone(recipe: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    folder.mkdir()
    (folder / "mine").write_text("precious")
    result = latentalign("prepare", recipe, "--to", folder)
    assert_mistake(result, "exists already")
    assert_mistake(
        latentalign("prepare", recipe, "--to", folder, "--overwrite"), "not written by this command"
    )
    assert [path.name for path in folder.iterdir()] == ["mine"]
    assert (folder / "mine").read_text() == "precious"


def test_a_task_without_files_to_convert_says_so(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("task: memory\n")
    result = latentalign("prepare", path, "--to", tmp_path / "shards")
    assert_mistake(result, "task 'memory' has nothing to convert")
    assert not (tmp_path / "shards").exists()
