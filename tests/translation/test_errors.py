"""Error rates against counting by hand, and their intervals against simulation."""

import numpy as np
import pytest

from latentalign.translation.errors import error_rates


def distance(left: list[str], right: list[str]) -> int:
    """By the definition: the last phones are equal, or one is changed, added or removed."""
    if not left or not right:
        return len(left) + len(right)
    return min(
        distance(left[:-1], right[:-1]) + (left[-1] != right[-1]),
        distance(left[:-1], right) + 1,
        distance(left, right[:-1]) + 1,
    )


def test_rates_are_those_of_the_definition() -> None:
    found = ["a b c", "aː t", "", "k a t", "x y"]
    references = ["a b c", "a t", "p", "k t a t", "y x"]
    edits = [distance(one.split(), other.split()) for one, other in zip(found, references, strict=True)]
    rates = error_rates(found, references)
    assert rates["word_error"] == pytest.approx(100 * 4 / 5)
    assert rates["phone_error"] == pytest.approx(100 * sum(edits) / 12)


def test_the_interval_has_the_width_that_chance_gives() -> None:
    random = np.random.default_rng(1)
    wrong = random.random(1000) < 0.2
    rates = error_rates(["b" if one else "a" for one in wrong], ["a"] * 1000)
    low, high = rates["word_error_interval"]
    assert low < rates["word_error"] < high
    assert high - low == pytest.approx(100 * 2 * 1.96 * np.sqrt(0.2 * 0.8 / 1000), rel=0.15)


def test_one_output_has_no_interval() -> None:
    assert error_rates(["a"], ["a"])["word_error_interval"] is None
