"""Entropies and distances of rows that may leave mass on no word."""

import math

import numpy as np
import pytest

from latentalign.inspector.translation_results import row_distance, row_entropy


def test_entropy_counts_no_word_as_an_outcome():
    rows = np.array([[0.5, 0.5], [0.5, 0.25], [1.0, 0.0], [0.0, 0.0]])
    assert row_entropy(rows) == pytest.approx([math.log(2), 1.5 * math.log(2), 0.0, 0.0])


def test_distance_is_half_of_what_differs():
    one = np.array([[1.0, 0.0], [0.25, 0.25], [0.5, 0.5]])
    other = np.array([[0.0, 1.0], [0.25, 0.75], [0.5, 0.5]])
    assert row_distance(one, other) == pytest.approx([1.0, 0.5, 0.0])


def test_rows_that_sum_to_slightly_more_than_one_do_no_harm():
    rows = np.array([[0.7, 0.3 + 1e-7]])
    assert np.isfinite(row_entropy(rows)).all()
    assert row_distance(rows, rows) == pytest.approx([0.0])
