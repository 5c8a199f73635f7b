"""From probabilities to links, on tables small enough to read."""

import numpy as np
import pytest

from latentalign.errors import UserError
from latentalign.wordalign.decoding import PairPosteriors


def pair(forward, backward, probs, threshold=0.3):
    words = [[str(n) for n in range(size)] for size in np.shape(probs)]
    return PairPosteriors(
        words[1], words[0], np.array(forward), np.array(backward), np.array(probs), threshold, 0.0
    )


def test_a_first_link_needs_less_than_a_further_one():
    """The threshold is 0.3: alone 0.4 is enough, for two words without another link 0.2."""
    probs = np.zeros((5, 5))  # [target, source]
    probs[0, 0], probs[1, 1] = 0.41, 0.9
    probs[0, 1] = 0.39  # both words have links
    probs[2, 2] = 0.21  # the first link of both
    probs[3, 3] = 0.19
    found = pair(probs, probs, probs).links()
    assert found == {(0, 0): 0.41, (1, 1): 0.9, (2, 2): 0.21}
    assert set(pair(probs, probs, probs).links(threshold=0.39)) == {(0, 0), (1, 1), (1, 0)}


def test_every_method_reads_its_own_table():
    forward = [[0.9, 0.05], [0.6, 0.3]]  # rows are distributions: 0-0, 0-1
    backward = [[0.8, 0.3], [0.1, 0.6]]  # columns are distributions: 0-0, 1-1
    probs = [[0.7, 0.2], [0.4, 0.5]]
    found = pair(forward, backward, probs)
    assert found.links("forward") == {(0, 0): 0.7, (0, 1): 0.4}
    assert found.links("backward") == {(0, 0): 0.7, (1, 1): 0.5}
    assert found.links("intersection") == {(0, 0): 0.7}
    assert found.links("union") == {(0, 0): 0.7, (0, 1): 0.4, (1, 1): 0.5}
    assert set(found.links("forward", threshold=0.3)) == {(0, 0), (0, 1), (1, 1)}
    assert set(found.links("backward", threshold=0.3)) == {(0, 0), (1, 0), (1, 1)}
    assert set(found.links("intersection", threshold=0.3)) == {(0, 0), (1, 1)}
    assert list(found.links("union")) == [(0, 0), (0, 1), (1, 1)]  # in order


@pytest.mark.parametrize("threshold", [-0.1, 1.1, float("nan")])
def test_a_threshold_is_a_probability(threshold):
    with pytest.raises(UserError, match="threshold: expected a probability between 0 and 1"):
        pair([[1.0]], [[1.0]], [[1.0]]).links(threshold=threshold)
