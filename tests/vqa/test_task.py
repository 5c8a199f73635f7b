"""The task through the trainer and the command line, and every kind of bad input."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
import yaml
from PIL import Image

from latentalign.errors import UserError
from latentalign.training.recipe.recipes import load_recipe
from latentalign.training.trained_run import load
from latentalign.vqa.config import VqaDataConfig, VqaModelConfig
from latentalign.vqa.features import RegionFeatures, encode_line, read_tsv
from latentalign.vqa.scene_files import FEATURE_TABLE, image_path
from latentalign.vqa.task import VqaTask

TRAIN_QUESTIONS = "v2_OpenEnded_mscoco_train2014_questions.json"
TRAIN_ANNOTATIONS = "v2_mscoco_train2014_annotations.json"
SMALL_MODEL = {
    "word_dim": 8, "question_dim": 8, "region_dim": 16, "attention_dim": 8, "answer_hidden_dim": 16,
    "posterior_answer_dim": 4, "posterior_hidden_dim": 8,
}  # fmt: skip


def write_recipe(path, folder, *, objective="marginal", **data):
    recipe = {
        "task": "vqa",
        "data": {"folder": str(folder), "min_answer_count": 2, "batch_size": 16, **data},
        "model": SMALL_MODEL,
        "objective": objective,
        "training": {"epochs": 1, "threads": 1, "accelerator": "cpu"},
    }
    path.write_text(yaml.safe_dump(recipe))
    return path


@pytest.fixture(scope="module")
def trained(scenes, tmp_path_factory):
    from latentalign.training.train import train

    folder = tmp_path_factory.mktemp("vqa-run")
    objective = {"name": "variational", "estimator": {"name": "reinforce", "samples": 2}}
    recipe = load_recipe(write_recipe(folder / "recipe.yaml", scenes, objective=objective))
    train(recipe, folder / "run", echo=False)
    return folder / "run"


def prepare(folder, tmp_path, **changes):
    lines = []
    options = {"folder": folder, "min_answer_count": 2, **changes}
    model = VqaModelConfig(**{**SMALL_MODEL, "word_vectors": changes.pop("word_vectors", None)})
    options.pop("word_vectors", None)
    prepared = VqaTask().prepare(VqaDataConfig(**options), model, folder=tmp_path, seed=1, log=lines.append)
    return prepared, lines


def test_prepares_vocabularies_and_says_what_was_dropped(scenes, tmp_path):
    prepared, lines = prepare(scenes, tmp_path, min_answer_count=12)
    assert len(prepared.train) < 119
    assert any("dropped" in line and "questions" in line for line in lines)
    loaded = VqaTask().load_assets(tmp_path)
    assert loaded.words == prepared.assets.words
    assert loaded.answers == prepared.assets.answers
    assert loaded.data == prepared.assets.data
    test = VqaTask().dataset(loaded, VqaTask().choose_data(split="test"))
    valid = VqaTask().dataset(loaded, VqaTask().choose_data(data=scenes, split="valid"))
    assert [e.question_id for e in valid.examples] == [e.question_id for e in prepared.valid.examples]
    assert not {e.image_id for e in valid.examples} & {e.image_id for e in test.examples}
    with pytest.raises(UserError, match="--split: expected 'train', 'valid' or 'test', received 'dev'"):
        VqaTask().dataset(loaded, VqaTask().choose_data(split="dev"))


def test_pretrained_vectors_reach_the_model(scenes, tmp_path):
    (tmp_path / "vectors.txt").write_text("left 1 2 3 4 5 6 7 8\n")
    prepared, lines = prepare(scenes, tmp_path, word_vectors=tmp_path / "vectors.txt")
    model = VqaTask().build_model(VqaModelConfig(**SMALL_MODEL), prepared.assets, needs_posterior=False)
    row = prepared.assets.words.words.index("left")
    assert model.words.weight[row].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert any("vectors of 1 of" in line for line in lines)


def test_trains_and_evaluates_through_the_command_line(trained, scenes, run_cli):
    for inference in ("exact", "kmax:3", "sample:5", "soft"):
        code, out, err = run_cli(
            "evaluate", trained, "--data", scenes, "--split", "test", "--inference", inference, "--json"
        )
        assert code == 0, err
        found = json.loads(out)
        assert found["task"] == "vqa"
        assert found["inference"] == inference
        for name in (
            "nll",
            "score",
            "score_official",
            "prior_entropy",
            "prior_gold",
            "posterior_gold",
            "elbo",
            "kl",
        ):
            assert isinstance(found[name], float), name
        assert 0 <= found["score"] <= 100
        assert any(name.startswith("score[what colour is the") for name in found)


def test_answers_one_question_with_regions_and_picture(trained, scenes, run_cli, tmp_path):
    ask = [
        "answer",
        trained,
        "--features",
        scenes / "features",
        "--image",
        3,
        "--question",
        "What colour is the circle?",
    ]
    code, out, err = run_cli(*ask, "--answer", "Red.", "--json", "--top", 3,
                             "--picture", image_path(scenes, 3), "--output", tmp_path / "a.png")  # fmt: skip
    assert code == 0, err
    found = json.loads(out)
    assert len(found["answers"]) == 3
    assert found["given"] == "red"
    assert found["posterior_by"] == "inference network"
    for name in ("prior", "posterior"):
        assert sum(entry[name] for entry in found["evidence"]) == pytest.approx(1, abs=1e-4)
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.width > 1000
    code, text, _ = run_cli(*ask)
    assert code == 0
    assert "posterior" not in text
    assert "region 0 (" in text


def test_answers_from_a_tsv_file_as_from_the_prepared_folder(trained, scenes, run_cli):
    outputs = [
        run_cli("answer", trained, "--features", source, "--image", 5, "-q", "what colour is it", "--json")[1]
        for source in (scenes / "features", scenes / FEATURE_TABLE)
    ]
    assert json.loads(outputs[0]) == json.loads(outputs[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--image", "3", "--features", "{scenes}/features", "--answer", "a giraffe"], "not among the"),
        (["--image", "999", "--features", "{scenes}/features"], "no features of image 999"),
        (["--image", "999", "--features", "{scenes}/regions.tsv"], "no features of image 999"),
        (["--features", "{scenes}/features"], "say which with --image"),
        (["--features", "{scenes}/regions.tsv"], "say which with --image"),
        ([], "--features: missing"),
        (["--story", "{scenes}/regions.tsv"], "--story: means nothing to a VQA run"),
        (["--image", "3", "--features", "{scenes}/features", "--output", "a.png"], "needs both --picture"),
        (["--image", "3", "--features", "{scenes}/features", "--inference", "kmx:3"], "did you mean 'kmax'"),
    ],
)
def test_a_wrong_question_is_one_line(trained, scenes, run_cli, arguments, message):
    arguments = [argument.format(scenes=scenes) for argument in arguments]
    code, out, err = run_cli("answer", trained, "--question", "what?", *arguments)
    assert code == 2
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


def test_a_run_moved_elsewhere_still_answers(trained, scenes, tmp_path):
    shutil.copytree(trained, tmp_path / "moved")
    run = load(tmp_path / "moved")
    assert run.assets.feature_dim == run.model.region.in_features
    dataset = run.task.dataset(run.assets, run.task.choose_data(data=scenes))
    with torch.no_grad():
        assert run.model.problem(dataset.collate([0, 1])).prior.probs.shape[0] == 2


# bad input of `train`: one line on stderr, exit code 2


def drop_annotation(folder):
    path = folder / TRAIN_ANNOTATIONS
    content = json.loads(path.read_text())
    content["annotations"].pop(3)
    path.write_text(json.dumps(content))


def ask_about_another_image(folder):
    path = folder / TRAIN_QUESTIONS
    content = json.loads(path.read_text())
    content["questions"][2]["image_id"] = 4040
    path.write_text(json.dumps(content))


def exchange_files(folder):
    (folder / TRAIN_ANNOTATIONS).write_bytes((folder / TRAIN_QUESTIONS).read_bytes())


def change_table(folder, change):
    rows = list(read_tsv(folder / FEATURE_TABLE))
    lines = [encode_line(row) for row in rows]
    lines[4] = change(rows[4], lines[4])
    (folder / FEATURE_TABLE).write_text("\n".join(lines) + "\n")


def move_box(row, line):
    boxes = row.boxes.copy()
    boxes[2] = (0, 0, 900, 10)
    return encode_line(replace(row, boxes=boxes))


def fewer_features(row, line):
    return encode_line(replace(row, features=row.features[:, :-1]))


@pytest.mark.parametrize(
    ("damage", "settings", "pieces"),
    [
        (drop_annotation, {}, [TRAIN_QUESTIONS, "has no annotation"]),
        (ask_about_another_image, {}, [TRAIN_QUESTIONS, "image 4040", "no features"]),
        (exchange_files, {}, [TRAIN_ANNOTATIONS, "not a VQA file"]),
        (lambda folder: None, {"min_answer_count": 999}, ["min_answer_count", "999 times"]),
        (lambda folder: None, {"features": "nowhere"}, ["nowhere", "latentalign prepare"]),
    ],
)
def test_bad_data_stop_training_with_one_line(own_scenes, tmp_path, run_cli, damage, settings, pieces):
    damage(own_scenes)
    recipe = write_recipe(tmp_path / "recipe.yaml", own_scenes, **settings)
    code, _, err = run_cli("train", recipe, "--out", tmp_path / "run")
    assert code == 2
    last = [line for line in err.splitlines() if line.startswith("latentalign: ")]
    assert len(last) == 1
    assert "Traceback" not in err
    for piece in pieces:
        assert piece in last[0]


@pytest.mark.parametrize(
    ("change", "pieces"),
    [
        (lambda row, line: line[:-100], ["line 5", "truncated"]),
        (fewer_features, ["line 5", "wrong size of features"]),
        (move_box, ["line 5", "outside the image"]),
    ],
)
def test_bad_features_stop_the_conversion_with_one_line(own_scenes, tmp_path, run_cli, change, pieces):
    change_table(own_scenes, change)
    recipe = write_recipe(tmp_path / "recipe.yaml", own_scenes, feature_files=[FEATURE_TABLE])
    code, _, err = run_cli("prepare", recipe, "--to", own_scenes / "again")
    assert code == 2
    assert err.count("\n") == 1
    for piece in [FEATURE_TABLE, *pieces]:
        assert piece in err
    assert not (own_scenes / "again").exists()


def test_prepare_converts_the_features_that_the_recipe_names(own_scenes, tmp_path, run_cli):
    table = {"feature_files": [FEATURE_TABLE], "feature_type": "float16"}
    recipe = write_recipe(tmp_path / "recipe.yaml", own_scenes, **table)
    code, out, err = run_cli("prepare", recipe, "--to", own_scenes / "again")
    assert code == 0, err
    assert out.strip() == str(own_scenes / "again")
    assert "42 images" in err
    sizes = [(own_scenes / name / "features.bin").stat().st_size for name in ("features", "again")]
    assert sizes[0] == 2 * sizes[1]
    code, _, err = run_cli("prepare", write_recipe(tmp_path / "r.yaml", own_scenes), "--to", tmp_path / "x")
    assert code == 2
    assert "feature_files" in err


def test_prepare_generates_scenes(tmp_path, run_cli):
    scenes = {"train_images": 2, "valid_images": 2, "questions_per_image": 1}
    recipe = write_recipe(tmp_path / "recipe.yaml", tmp_path / "made", scenes=scenes)
    code, _, err = run_cli("prepare", recipe, "--to", tmp_path / "made")
    assert code == 0, err
    assert (tmp_path / "made" / TRAIN_QUESTIONS).is_file()
    assert len(RegionFeatures(tmp_path / "made" / "features")) == 4


@pytest.mark.parametrize("name", ["vqa-scenes", "vqa2"])
def test_packaged_recipes_are_valid(name):
    recipe = load_recipe(name)
    assert recipe.task.name == "vqa"
