"""The rule of figure 3: sentences are chosen by divergence, never by hand."""

import math

import numpy as np
import pytest

from latentalign.reports.paper.figure3 import divergence, draw_figure3, largest
from latentalign.training.trained_run import load
from tests.cli.command import untrained_run
from tests.translation.tiny import SENTENCES, TARGETS


def test_divergence_is_zero_for_equal_and_log_two_for_disjoint_rows():
    one, other = np.array([[1.0, 0.0], [0.2, 0.3]]), np.array([[0.0, 1.0], [0.2, 0.3]])
    assert divergence(one, one) == pytest.approx(0.0)
    assert divergence(one[:1], other[:1]) == pytest.approx(math.log(2))
    assert divergence(one, other) == divergence(other, one) == pytest.approx(math.log(2) / 2)


def test_probability_on_no_word_counts():
    assert divergence(np.array([[0.0, 0.0]]), np.array([[1.0, 0.0]])) == pytest.approx(math.log(2))
    assert divergence(np.array([[0.4, 0.0]]), np.array([[0.0, 0.4]])) == pytest.approx(0.4 * math.log(2))


def test_the_largest_come_first_and_ties_keep_their_order():
    assert largest([0.1, None, 0.5, 0.5, 0.2], 3) == [2, 3, 4]
    assert largest([None], 3) == []


def test_pictures_of_real_pairs(tmp_path):
    soft = load(untrained_run(tmp_path / "soft", objective="soft"))
    variational = load(untrained_run(tmp_path / "variational"))
    (tmp_path / "t.de").write_text("\n".join(SENTENCES) + "\n")
    (tmp_path / "t.en").write_text("\n".join(TARGETS) + "\n")
    records = draw_figure3(
        soft, variational, source=tmp_path / "t.de", target=tmp_path / "t.en", out=tmp_path, shown=1
    )
    assert [record["contrast"] for record in records] == [
        "prior against posterior", "soft attention against variational prior"
    ]  # fmt: skip
    for record in records:
        assert record["line"] in (1, 5)  # the others are too short for a picture
        assert record["divergence"] >= record["mean_divergence"] >= 0
        assert (tmp_path / record["picture"]).read_bytes().startswith(b"\x89PNG")
        assert not any(word in str(record) for word in ("Hund", "dog", "Park"))
