import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from latentalign.errors import UserError
from latentalign.vqa.answers import normalise_answer
from latentalign.vqa.descriptors import DIM, describe_regions
from latentalign.vqa.features import RegionFeatures, read_tsv
from latentalign.vqa.files import read_examples, read_gold_regions
from latentalign.vqa.scene_files import (
    ANNOTATIONS,
    FEATURE_TABLE,
    FEATURES,
    GOLD,
    QUESTIONS,
    ScenesConfig,
    ensure_scenes,
    image_path,
    write_scenes,
)
from latentalign.vqa.scene_questions import SceneQuestion, ask_questions, main_answer, simulate_answers
from latentalign.vqa.scenes import CELL, COLOURS, SIDE, Scene, Shape, make_scene, render


def make_shape(kind, colour, size, row, column):
    return Shape(
        kind, colour, size, row, column,
        x=(column + 0.5) * CELL, y=(row + 0.5) * CELL, radius=20.0 if size == "large" else 10.0,
        angle=0.0, rgb=COLOURS[colour],
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_a_scene_has_boxes_of_shapes_neighbours_and_clutter(seed):
    scene = make_scene(np.random.default_rng(seed))
    singles = [owner for owner in scene.owners if len(owner) == 1]
    assert sorted(singles) == [(n,) for n in range(len(scene.shapes))]
    assert scene.owners.count(()) == len(scene.clutter) >= 2
    assert (scene.boxes[:, :2] >= 0).all()
    assert (scene.boxes[:, 2:] <= SIDE).all()
    for box, owner in zip(scene.boxes, scene.owners, strict=True):
        for number in owner:
            shape = scene.shapes[number]
            assert box[0] < shape.x < box[2]
            assert box[1] < shape.y < box[3]


def test_scenes_overlap_and_differ():
    scenes = [make_scene(np.random.default_rng(seed)) for seed in range(40)]

    def overlap(one, other):
        return (
            abs(one.x - other.x) < one.radius + other.radius
            and abs(one.y - other.y) < one.radius + other.radius
        )

    pairs = [(a, b) for scene in scenes for a in scene.shapes for b in scene.shapes if a is not b]
    assert 0.02 < np.mean([overlap(a, b) for a, b in pairs]) < 0.4
    assert len({scene.shapes for scene in scenes}) == 40


def test_descriptors_depend_on_the_pixels_of_their_box_only():
    rng = np.random.default_rng(0)
    scene = make_scene(rng)
    image = render(scene, rng)
    before = describe_regions(image, scene.boxes)
    assert before.shape == (len(scene.boxes), DIM)
    x1, y1, x2, y2 = scene.boxes[0]
    changed = np.asarray(image).copy()
    rows, columns = np.mgrid[:SIDE, :SIDE]
    outside = (columns < x1 - 6) | (columns > x2 + 6) | (rows < y1 - 6) | (rows > y2 + 6)
    changed[outside] = 255 - changed[outside]
    after = describe_regions(Image.fromarray(changed), scene.boxes)
    np.testing.assert_allclose(after[0], before[0], atol=1e-5)
    assert not np.allclose(after[1:], before[1:], atol=1e-5)
    painted = describe_regions(Image.new("RGB", image.size, (200, 30, 30)), scene.boxes)
    assert np.abs(painted[0] - before[0]).max() > 0.5


def test_the_answers_are_true_and_the_gold_region_shows_them():
    scene = Scene(
        shapes=(
            make_shape("square", "red", "small", 1, 1),
            make_shape("circle", "blue", "large", 1, 0),
            make_shape("cross", "blue", "small", 0, 1),
        ),
        clutter=(),
        boxes=np.zeros((5, 4), dtype=np.float32),
        owners=((0, 2), (2,), (1,), (0, 1), (0,)),
    )
    rng = np.random.default_rng(0)
    asked = {q.text: q for _ in range(300) for q in ask_questions(scene, 5, rng)}
    expected = SceneQuestion(
        "what colour is the shape left of the small red square?", "what colour is the shape", "blue", (3, 2)
    )
    assert asked[expected.text] == expected
    assert asked["which shape is above the square?"].answer == "cross"
    assert asked["which shape is above the square?"].regions == (0, 1)
    assert asked["what shape is the red thing?"].regions == (4,)
    assert asked["is the small cross blue?"].answer == "yes"
    assert "what shape is the blue thing?" not in asked  # two are blue
    assert not any("right of the square" in text or "below the square" in text for text in asked)


def test_no_question_when_two_shapes_lie_in_the_direction():
    shapes = tuple(
        make_shape(k, c, "small", 1, n)
        for n, (k, c) in enumerate([("circle", "red"), ("cross", "blue"), ("square", "green")])
    )
    scene = Scene(shapes, (), np.zeros((5, 4), dtype=np.float32), ((0,), (1,), (2,), (0, 1), (1, 2)))
    asked = {q.text for _ in range(60) for q in ask_questions(scene, 5, np.random.default_rng(1))}
    assert not any("left of the green" in text for text in asked)


def test_ten_people_mostly_agree_in_different_spellings():
    rng = np.random.default_rng(0)
    question = SceneQuestion("what colour is the circle?", "what colour is the", "red", (0,))
    said = [simulate_answers(question, rng) for _ in range(300)]
    assert {len(answers) for answers in said} == {10}
    normalised = Counter(normalise_answer(answer) for answers in said for answer in answers)
    assert 0.8 < normalised["red"] / 3000 < 0.95
    assert set(normalised) == {"red", "purple", "unclear"}
    spellings = {answer for answers in said for answer in answers if normalise_answer(answer) == "red"}
    assert {"red", "Red", "red.", "the red"} <= spellings
    assert main_answer(["Red", "red.", "purple"]) == "red"


def test_files_are_in_the_real_formats_and_fit_together(scenes):
    train, valid = (
        read_examples(scenes / QUESTIONS.format(split=split), scenes / ANNOTATIONS.format(split=split))
        for split in ("train2014", "val2014")
    )
    features = RegionFeatures(scenes / FEATURES)
    gold = read_gold_regions(scenes / GOLD)
    assert len({e.image_id for e in train}) == 30
    assert len({e.image_id for e in valid}) == 12
    assert len(features) == 42
    assert features.dim == DIM
    for example in train + valid:
        assert len(example.answers) == 10
        count = len(features[example.image_id].boxes)
        assert gold[example.question_id]
        assert all(0 <= region < count for region in gold[example.question_id])
    table = next(iter(read_tsv(scenes / FEATURE_TABLE)))
    with Image.open(image_path(scenes, table.image_id)) as image:
        assert image.size == (table.width, table.height)
        np.testing.assert_allclose(describe_regions(image, table.boxes), table.features, atol=1e-5)


def test_the_same_settings_give_the_same_files(tmp_path):
    config = ScenesConfig(train_images=2, valid_images=2, questions_per_image=2)
    write_scenes(tmp_path / "a", config)
    write_scenes(tmp_path / "b", config)
    write_scenes(tmp_path / "c", config.model_copy(update={"seed": 1}))
    names = [path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file()]
    assert all((tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in names)
    assert (tmp_path / "a" / FEATURE_TABLE).read_bytes() != (tmp_path / "c" / FEATURE_TABLE).read_bytes()


def test_a_folder_is_used_again_or_refused(own_scenes, tmp_path):
    found = json.loads((own_scenes / "scenes.json").read_text())
    before = (own_scenes / GOLD).stat().st_mtime_ns
    ensure_scenes(own_scenes, ScenesConfig(**found))
    assert (own_scenes / GOLD).stat().st_mtime_ns == before
    with pytest.raises(UserError, match="remove the folder or choose"):
        ensure_scenes(own_scenes, ScenesConfig(**{**found, "seed": 9}))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="no generated scenes"):
        ensure_scenes(tmp_path / "other", ScenesConfig(**found))


def test_shapes_look_different():
    rng = np.random.default_rng(0)
    shape = make_shape("circle", "red", "large", 1, 1)
    box = np.array([[50, 50, 94, 94]], dtype=np.float32)
    seen = []
    for other in (shape, replace(shape, kind="triangle"), replace(shape, colour="blue", rgb=COLOURS["blue"])):
        scene = Scene((other,), (), box, ((0,),))
        seen.append(describe_regions(render(scene, rng), box)[0])
    assert np.abs(seen[0] - seen[1]).max() > 0.5
    assert np.abs(seen[0] - seen[2]).max() > 0.5
