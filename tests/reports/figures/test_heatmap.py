"""Heat maps: readable sizes, every format, all scripts, and mistakes."""

import io
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from latentalign.errors import UserError
from latentalign.reports.figures.heatmap import check_format, heatmap, render, save


def words(count, letter):
    return [letter * (1 + number % 9) for number in range(count)]


def rows(targets, sources):
    return np.random.default_rng(1).dirichlet(np.full(sources, 0.1), targets)


def test_forty_words_a_side_have_room():
    panels = {"prior": rows(40, 40), "posterior": rows(40, 40)}
    figure = heatmap(panels, words(40, "s"), words(40, "t"), title="a pair", gold=[(0, 0), (39, 39)])
    first, second = figure.axes[:2]
    figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in first.get_yticklabels()]
    assert all(one.y0 >= other.y1 - 0.5 for one, other in pairwise(boxes))  # none overlap
    assert min(box.x0 for box in boxes) >= 0  # nor are any cut off
    assert max(label.get_window_extent().y1 for label in first.get_xticklabels()) <= figure.bbox.height
    assert max(label.get_window_extent().x1 for label in second.get_yticklabels()) <= figure.bbox.width
    assert [label.get_text() for label in first.get_xticklabels()] == words(40, "s")
    assert len(first.patches) == 2
    picture = Image.open(io.BytesIO(render(figure, "png")))
    assert picture.width > 2500  # a word gets some forty pixels
    assert picture.height > 1500


def test_cells_show_the_probabilities():
    matrix = np.array([[0.9, 0.1], [0.2, 0.7], [0.0, 0.3]])
    axes = heatmap({"prior": matrix}, ["a", "b"], ["x", "y", "z"]).axes[0]
    assert np.asarray(axes.images[0].get_array()) == pytest.approx(matrix)
    assert axes.get_ylim() == (2.5, -0.5)  # the first target word on top


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.PDF", b"%PDF")])
def test_formats_by_name(tmp_path, name, start):
    save(heatmap({"prior": rows(2, 3)}, words(3, "s"), words(2, "t")), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_same_picture_twice_is_the_same_file(tmp_path):
    for kind in ("png", "svg"):
        one, other = (
            render(heatmap({"p": rows(2, 3)}, words(3, "s"), words(2, "t")), kind) for _ in range(2)
        )
        assert one == other


def test_scripts_and_dollars_survive_in_svg():
    source = ["猫", "が", "שלום", "القط", "$x", "y$", "x<&>y", "é"]
    svg = render(heatmap({"prior": rows(2, 8)}, source, ["नमस्ते", "👍🏽"]), "svg").decode()
    for word in ("猫", "$x", "y$", "x&lt;&amp;&gt;y", "é", "नमस्ते"):
        assert word in svg


def test_an_svg_is_xml_whatever_the_words_hold(tmp_path):
    source = [
        f"a{chr(code)}b" for code in (0, 1, 8, 11, 12, 27, 31, 127, 0x85, 0x2028, 0xD800, 0xFFFE, 0xFFFF)
    ]
    figure = heatmap({"pri\x1bor": rows(1, len(source))}, source, ["x"], title="a\x02title")
    save(figure, tmp_path / "a.svg")
    texts = {text for element in ElementTree.parse(tmp_path / "a.svg").iter() for text in element.itertext()}
    assert "a\ufffdb" in texts
    assert "a\ufffdtitle" in texts
    for kind in ("png", "pdf"):
        assert render(figure, kind)


def test_missing_glyphs_are_said_once_and_not_fatal(caplog):
    render(heatmap({"prior": rows(1, 2)}, ["\U0001f9ff", "𓀀"], ["𓁐"]), "png")
    assert len(caplog.records) == 1


def test_a_long_word_is_cut():
    figure = heatmap({"prior": rows(1, 1)}, ["Donaudampfschifffahrtsgesellschaftskapitän"], ["x"])
    assert figure.axes[0].get_xticklabels()[0].get_text() == "Donaudampfschifffahrt…"


def test_mistakes():
    with pytest.raises(UserError, match="at least one word"):
        heatmap({"prior": np.zeros((0, 2))}, ["a", "b"], [])
    with pytest.raises(UserError, match=r"picture name ending in .png, .svg or .pdf"):
        check_format("picture.gif")
    with pytest.raises(ValueError, match="panel prior: expected"):
        heatmap({"prior": rows(2, 2)}, ["a"], ["b"])
