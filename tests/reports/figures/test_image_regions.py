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


def make_result(weights, *, posterior=False):
    boxes = [[0, 0, 40, 40], [50, 10, 100, 80], [10, 45, 30, 70]]
    names = ("prior", "posterior") if posterior else ("prior",)
    return {
        "question": "what colour is it?",
        "given": "blue",
        "size": [100, 80],
        "answers": [{"answer": "blue", "probability": 0.9}],
        "evidence": [
            {"text": "region", "box": box, **dict.fromkeys(names, weight)}
            for box, weight in zip(boxes, weights, strict=True)
        ],
    }


def test_one_panel_without_and_two_with_an_answer(picture, tmp_path):
    draw_answer(make_result([0.7, 0.2, 0.1]), picture, tmp_path / "one.png")
    draw_answer(make_result([0.7, 0.2, 0.1], posterior=True), picture, tmp_path / "two.png")
    with Image.open(tmp_path / "one.png") as one, Image.open(tmp_path / "two.png") as two:
        assert two.width == pytest.approx(2 * one.width, abs=2)


def test_the_image_stays_clear_where_the_probability_is(picture, tmp_path):
    """The mean colour of the drawing moves with the weights."""
    blues = []
    for weights in ([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]):
        draw_answer(make_result(weights), picture, tmp_path / "a.png")
        with Image.open(tmp_path / "a.png") as drawn:
            pixels = np.asarray(drawn.convert("RGB")).astype(float)
        strong = (pixels[..., 2] > 150) & (pixels[..., 0] < 80)
        half = pixels.shape[1] // 2
        blues.append((strong[:, :half].sum(), strong[:, half:].sum()))
    assert blues[0][0] > 3 * blues[0][1]
    assert blues[1][1] > 3 * blues[1][0]


def test_mistakes_are_named(picture, tmp_path):
    result = make_result([0.7, 0.2, 0.1])
    with pytest.raises(UserError, match="no such image"):
        draw_answer(result, tmp_path / "none.png", tmp_path / "a.png")
    with pytest.raises(UserError, match="is it the same picture"):
        draw_answer({**result, "size": [10, 10]}, picture, tmp_path / "a.png")
    (tmp_path / "text.png").write_text("no picture")
    with pytest.raises(UserError, match="not a picture"):
        draw_answer(result, tmp_path / "text.png", tmp_path / "a.png")
    with pytest.raises(UserError, match=r"try a name that ends in \.png"):
        draw_answer(result, picture, tmp_path / "a.xyz")
    with pytest.raises(UserError, match="needs a VQA run"):
        draw_answer({**result, "evidence": [{"text": "fact", "prior": 1.0}]}, picture, tmp_path / "a.png")
