from collections import Counter

import numpy as np
import pytest
import torch

from latentalign.errors import UserError
from latentalign.vqa.dataset import VqaDataset, draw_labels
from latentalign.vqa.features import ImageRegions, RegionFeatures, convert_features, encode_line
from latentalign.vqa.files import VqaExample
from latentalign.vqa.vocabulary import Answers, Words

ANSWERS = Answers(("red", "blue", "yes"))
EXAMPLES = [
    VqaExample(10, 1, "what is it", ("red",) * 7 + ("blue",) * 2 + ("pink",), "red", "what"),
    VqaExample(11, 2, "is it red", ("yes",) * 10, "yes", "is"),
    VqaExample(12, 1, "why", ("because",) * 10, "because", "why"),
]


@pytest.fixture
def features(tmp_path):
    rng = np.random.default_rng(0)
    lines = []
    for image_id, count in ((1, 2), (2, 4)):
        boxes = np.tile(np.array([[0, 0, 5, 5]], dtype=np.float32), (count, 1))
        lines.append(
            encode_line(ImageRegions(image_id, 10, 10, boxes, rng.normal(size=(count, 3)).astype("f4")))
        )
    (tmp_path / "a.tsv").write_text("\n".join(lines))
    convert_features([tmp_path / "a.tsv"], tmp_path / "f")
    return RegionFeatures(tmp_path / "f")


def build(features, examples=EXAMPLES, **changes):
    options = {
        "words": Words.collect(e.question for e in EXAMPLES),
        "answers": ANSWERS,
        "gold": {10: (1,), 11: (0, 3)},
        "batch_size": 2,
        "max_words": 14,
        "normalise_features": False,
        "source": "q.json",
        "draw": False,
    }
    return VqaDataset(examples, features, **{**options, **changes})


def test_a_batch_pads_words_and_regions(features):
    batch = build(features).collate([0, 1])
    assert batch.words.shape == (2, 3)
    assert batch.regions.shape == (2, 4, 3)
    assert batch.region_mask.tolist() == [[True, True, False, False], [True] * 4]
    assert (batch.regions[0, 2:] == 0).all()
    torch.testing.assert_close(batch.regions[1], torch.from_numpy(features[2].features))
    assert batch.gold.tolist() == [[False, True, False, False], [True, False, False, True]]
    assert batch.said[0].tolist() == [0] * 7 + [1] * 2 + [-1]
    assert batch.targets[1].item() == 2
    assert batch.question_types == ("what", "is")


def test_a_question_without_a_kept_answer_does_not_count(features):
    batch = build(features).collate([2, 1])
    assert batch.answerable.tolist() == [[False], [True]]
    assert batch.targets[0].item() == 0


def test_labels_are_drawn_in_proportion_among_kept_answers(features):
    dataset = build(features, draw=True)
    torch.manual_seed(0)
    drawn = Counter(dataset.collate([0]).targets.item() for _ in range(900))
    assert set(drawn) == {0, 1}
    assert abs(drawn[0] / 900 - 7 / 9) < 0.06  # four standard deviations


def test_labels_follow_the_seed_of_the_trainer(features):
    dataset = build(features, draw=True)

    def draw(seed):
        torch.manual_seed(seed)
        return [dataset.collate([0]).targets.item() for _ in range(40)]

    assert draw(3) == draw(3)
    assert draw(3) != draw(4)
    fixed = build(features)
    assert {fixed.collate([0]).targets.item() for _ in range(20)} == {fixed.collate([0, 1]).targets[0].item()}


def test_every_person_with_a_kept_answer_can_be_drawn():
    said = np.array([[5, -1, 6, 7, -2]])
    cumulative = (said >= 0).cumsum(axis=1)
    drawn = [draw_labels(said, cumulative, np.array([u]))[0] for u in (0.0, 0.33, 0.34, 0.66, 0.67, 1.0)]
    assert drawn == [5, 5, 6, 6, 7, 7]


def test_plans_are_shuffled_by_epoch_and_seed_only(features):
    examples = EXAMPLES[:2] * 20
    dataset = build(features, examples)
    plan = dataset.plan(0, 1)
    assert sorted(i for batch in plan for i in batch) == list(range(40))
    assert plan == dataset.plan(0, 1)
    assert plan != dataset.plan(1, 1)
    assert plan != dataset.plan(0, 2)
    assert dataset.plan(-1, 1) == dataset.plan(-1, 2) == [[i, i + 1] for i in range(0, 40, 2)]


def test_an_image_without_features_is_named(features):
    lost = VqaExample(77, 5, "what", ("red",), "red", "what")
    with pytest.raises(UserError, match=r"q.json: question 77 is about image 5, which has no features"):
        build(features, [*EXAMPLES, lost])


def test_features_can_be_normalised_and_places_described(features):
    dataset = build(features, normalise_features=True)
    batch = dataset.collate([0, 1])
    torch.testing.assert_close(batch.regions.norm(dim=-1), batch.region_mask.float())
    assert dataset.describe([0, 2]) == "questions 10, 12 of q.json"
    assert batch.to("cpu").words.equal(batch.words)
