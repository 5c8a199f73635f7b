"""Curves fitted to another direction, and the threshold of the greatest expected F-measure."""

import numpy as np
import pytest

from latentalign.wordalign.calibration import Calibration, CalibrationCurve, best_threshold


def test_a_curve_finds_what_the_other_direction_says():
    chance = np.random.default_rng(0)
    probs = chance.beta(0.5, 0.5, 20_000)
    truth = CalibrationCurve(-0.5, 0.6)
    judged = (chance.random(len(probs)) < truth(probs)).astype(float)
    found = CalibrationCurve.fit(probs, judged)
    assert (found.shift, found.slope) == (pytest.approx(-0.5, abs=0.05), pytest.approx(0.6, abs=0.03))


def test_without_anything_to_see_a_probability_stays_what_it_is():
    nothing = np.zeros(0)
    assert CalibrationCurve.fit(nothing, nothing) == CalibrationCurve()
    assert Calibration.fit([]) == Calibration()
    assert CalibrationCurve()(np.array([0.2, 0.9])) == pytest.approx([0.2, 0.9])


def test_the_threshold_is_the_best_of_all():
    chance = np.random.default_rng(1)
    probs = chance.beta(0.4, 0.6, 300)

    def expected(threshold: float) -> float:
        taken = probs[probs >= threshold]
        return 2 * taken.sum() / (len(taken) + probs.sum())

    found = best_threshold(probs)
    assert expected(found) == pytest.approx(max(expected(value) for value in probs))
    # known of the F-measure: the best threshold is half of its value
    assert found == pytest.approx(expected(found) / 2, abs=0.02)


def test_a_neighbour_vouches_for_a_link_that_a_direction_cannot_have():
    """Target words 0 and 1 both belong to source word 0, but backward gives the source word one link."""
    forward = np.array([[0.98, 0.0], [0.98, 0.0], [0.0, 0.98]])
    backward = np.array([[0.98, 0.0], [0.0, 0.0], [0.0, 0.98]])
    everywhere = np.ones((1, 3, 2), dtype=bool)
    (probs,) = Calibration().probs(forward[None], backward[None], everywhere)
    assert probs[1, 0] > 0.9
    assert probs[1, 1] < 0.01
    (apart,) = Calibration().probs(forward[None, [0, 2, 1]], backward[None, [0, 2, 1]], everywhere)
    assert apart[2, 0] == pytest.approx(0.49, abs=0.01)


def test_padding_vouches_for_nothing():
    chance = np.random.default_rng(2)
    forward, backward = chance.random((2, 1, 3, 2))
    curves = Calibration(CalibrationCurve(3.0, 0.1), CalibrationCurve(2.0, 0.2))
    alone = curves.probs(forward, backward, np.ones((1, 3, 2), dtype=bool))
    padded = [np.pad(side, ((0, 0), (0, 2), (0, 1))) for side in (forward, backward, np.ones((1, 3, 2)))]
    found = curves.probs(padded[0], padded[1], padded[2].astype(bool))
    np.testing.assert_allclose(found[:, :3, :2], alone)


def test_the_mean_of_calibrations_is_weighted():
    one, other = (
        Calibration(CalibrationCurve(0.0, 1.0), CalibrationCurve(1.0, 1.0), 0.2),
        Calibration(CalibrationCurve(1.0, 0.5), CalibrationCurve(0.0, 1.0), 0.6),
    )
    mean = Calibration.mean([(one, 3.0), (other, 1.0)])
    assert mean.forward == CalibrationCurve(0.25, 0.875)
    assert mean.backward == CalibrationCurve(0.75, 1.0)
    assert mean.threshold == pytest.approx(0.3)


def test_a_judge_that_denies_everything_does_no_harm():
    probs = np.concatenate([np.full(5000, 0.999999), np.linspace(0.01, 0.99, 50)])
    found = CalibrationCurve.fit(probs, np.zeros_like(probs))
    assert np.isfinite([found.shift, found.slope]).all()
    assert found(np.array([0.999999])) < 0.1
