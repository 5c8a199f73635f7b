"""An image with its regions weighted: every panel by its own weights, and mistakes."""

from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from latentalign.errors import UserError
from latentalign.reports.figures.image_regions import draw_answer


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "scene.png"
    Image.new("RGB", (100, 80), (30, 60, 200)).save(path)
    return path


def make_result(prior, posterior=None):
    boxes = [[0, 0, 40, 40], [50, 10, 100, 80], [10, 45, 30, 70]]
    weights = {"prior": prior} if posterior is None else {"prior": prior, "posterior": posterior}
    return {
        "question": "what colour is it?",
        "given": "blue",
        "size": [100, 80],
        "answers": [{"answer": "blue", "probability": 0.9}],
        "evidence": [
            {"text": "region", "box": box, **{name: values[number] for name, values in weights.items()}}
            for number, box in enumerate(boxes)
        ],
    }


def blue_share(path, panel=0, panels=1):
    """Of the clear blue in a panel of the drawing, how much is in its left half."""
    with Image.open(path) as drawn:
        pixels = np.asarray(drawn.convert("RGB")).astype(float)
    width = pixels.shape[1] // panels
    pixels = pixels[:, panel * width : (panel + 1) * width]
    strong = (pixels[..., 2] > 150) & (pixels[..., 0] < 80)
    return float(strong[:, : width // 2].sum() / strong.sum())


def test_one_panel_without_and_two_with_an_answer(picture, tmp_path):
    draw_answer(make_result([0.7, 0.2, 0.1]), picture, tmp_path / "one.png")
    draw_answer(make_result([0.7, 0.2, 0.1], [0.1, 0.2, 0.7]), picture, tmp_path / "two.png")
    with Image.open(tmp_path / "one.png") as one, Image.open(tmp_path / "two.png") as two:
        assert two.width == pytest.approx(2 * one.width, abs=2)


def test_the_image_stays_clear_where_the_probability_is(picture, tmp_path):
    for weights, left in (([1.0, 0.0, 0.0], True), ([0.0, 1.0, 0.0], False)):
        draw_answer(make_result(weights), picture, tmp_path / "a.png")
        assert (blue_share(tmp_path / "a.png") > 0.75) is left


@pytest.mark.parametrize("turned", [False, True])
def test_each_panel_has_its_own_weights(picture, tmp_path, turned):
    """The prior on one region and the posterior on the other: the panels are not the same, nor exchanged."""
    one, other = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]
    result = make_result(other, one) if turned else make_result(one, other)
    draw_answer(result, picture, tmp_path / "two.png")
    prior, posterior = (blue_share(tmp_path / "two.png", panel, 2) for panel in (0, 1))
    assert (prior < 0.25 and posterior > 0.75) if turned else (prior > 0.75 and posterior < 0.25)


def test_a_question_with_odd_characters_is_still_a_picture(picture, tmp_path):
    result = {**make_result([0.7, 0.2, 0.1]), "question": "what\x07 is <it> & $why?"}
    draw_answer(result, picture, tmp_path / "a.svg")
    assert ElementTree.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")


def test_mistakes_are_named(picture, tmp_path):
    result = make_result([0.7, 0.2, 0.1])
    with pytest.raises(UserError, match="no such image"):
        draw_answer(result, tmp_path / "none.png", tmp_path / "a.png")
    with pytest.raises(UserError, match="is it the same picture"):
        draw_answer({**result, "size": [10, 10]}, picture, tmp_path / "a.png")
    (tmp_path / "text.png").write_text("no picture")
    with pytest.raises(UserError, match="not a picture"):
        draw_answer(result, tmp_path / "text.png", tmp_path / "a.png")
    with pytest.raises(UserError, match=r"picture name ending in \.png, \.svg or \.pdf"):
        draw_answer(result, picture, tmp_path / "a.xyz")
    with pytest.raises(UserError, match="needs a VQA run"):
        draw_answer({**result, "evidence": [{"text": "fact", "prior": 1.0}]}, picture, tmp_path / "a.png")
