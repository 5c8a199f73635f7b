"""The arithmetic of the Transformer's benchmark; the peer itself is not needed for it."""

import pytest
from benchmarks.transformer import PEER, compared
from benchmarks.transformer_learning import PEAK, WARMUP, rates
from benchmarks.translation.setting import Stopwatch


def watch(work: float, processor: float) -> Stopwatch:
    found = Stopwatch()
    found.work, found.seconds, found.processor = work, 100.0, processor
    return found


def test_ratios_are_of_processor_time() -> None:
    found = compared({PEER: [watch(10, 2), watch(30, 2)], "ours": [watch(10, 1), watch(30, 1)]})
    assert found[PEER]["over_peer"] == 1.0
    assert found["ours"]["per_processor_second"] == pytest.approx(20.0)
    assert found["ours"]["over_peer"] == 2.0
    assert found["ours"]["over_peer_by_round"] == [2.0, 2.0]


def test_rates_grow_to_their_peak_and_fall_with_the_square_root() -> None:
    found = rates(4 * WARMUP)
    assert found[WARMUP - 1] == max(found) == PEAK
    assert found[WARMUP // 2 - 1] == pytest.approx(PEAK / 2)
    assert found[-1] == pytest.approx(PEAK / 2)
