"""Curves fitted to another direction, and the threshold of the greatest expected F-measure."""

import math

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


@pytest.mark.parametrize(
    ("probs", "judged"),
    [
        ([0.03, 0.2, 0.5, 0.7, 0.96, 0.99], [0.0, 0.4, 0.1, 0.9, 0.8, 1.0]),
        ([0.02, 0.1, 0.9, 0.98], [0.4, 0.45, 0.55, 0.6]),  # no shift, from the first step on
    ],
    ids=["few", "symmetric"],
)
def test_a_curve_of_few_links_is_the_likeliest_under_its_prior(probs, judged):
    """Log-likelihood − ½|curve − (0, 1)|² in plain loops: every step aside is worse, and it has one maximum."""

    def gain(shift, slope):
        total = -(shift**2 + (slope - 1) ** 2) / 2
        for u, said in zip(probs, judged, strict=True):
            p = 1 / (1 + math.exp(-(shift + slope * math.log(u / (1 - u)))))
            total += said * math.log(p) + (1 - said) * math.log(1 - p)
        return total

    found = CalibrationCurve.fit(np.array(probs), np.array(judged))
    best = gain(found.shift, found.slope)
    for angle in range(8):
        aside = 1e-3 * math.cos(angle * math.pi / 4), 1e-3 * math.sin(angle * math.pi / 4)
        assert gain(found.shift + aside[0], found.slope + aside[1]) < best - 1e-8
    # what is hardly possible says nothing
    more = CalibrationCurve.fit(np.array([*probs, 0.0009]), np.array([*judged, 1.0]))
    assert more == found


def test_a_judge_that_says_the_opposite_leaves_no_slope():
    probs = np.linspace(0.05, 0.95, 200)
    assert CalibrationCurve.fit(probs, 1 - probs).slope == 0.0


@pytest.mark.parametrize(
    ("probs", "threshold"),
    [([], 0.5), ([0.8], 0.4), ([0.9, 0.1, 0.9], 0.5), ([0.004], 0.01)],
    ids=["nothing", "one link", "between the last link and the next", "never below a hundredth"],
)
def test_thresholds_by_hand(probs, threshold):
    assert best_threshold(np.array(probs)) == pytest.approx(threshold)


def test_probabilities_of_links_by_plain_loops():
    chance = np.random.default_rng(5)
    forward, backward = chance.random((2, 2, 4, 3))
    inside = np.ones((2, 4, 3), dtype=bool)
    inside[1, 3] = inside[1, :, 2] = False
    curves = Calibration(CalibrationCurve(0.3, 0.8), CalibrationCurve(-0.2, 1.1))

    def curve(shift, slope, u):
        return 1 / (1 + math.exp(-(shift + slope * math.log(u / (1 - u)))))

    found = curves.probs(forward, backward, inside)
    for b, (height, width) in enumerate([(4, 3), (3, 2)]):
        one = {(t, s): curve(0.3, 0.8, forward[b, t, s]) for t in range(height) for s in range(width)}
        other = {(t, s): curve(-0.2, 1.1, backward[b, t, s]) for t in range(height) for s in range(width)}
        for (t, s), p in one.items():
            r = other[t, s]
            in_backward = p * max(other.get((t - 1, s), 0.0), other.get((t + 1, s), 0.0))
            in_forward = r * max(one.get((t, s - 1), 0.0), one.get((t, s + 1), 0.0))
            expected = 1 - ((1 - p) * (1 - in_forward) + (1 - r) * (1 - in_backward)) / 2
            assert found[b, t, s] == pytest.approx(expected)


def test_batches_and_padding_do_not_change_a_calibration():
    chance = np.random.default_rng(6)
    sides = chance.beta(0.4, 0.6, (2, 6, 3, 2))
    everywhere = np.ones((6, 3, 2), dtype=bool)
    whole = Calibration.fit([(*sides, everywhere)])
    padded = [np.pad(side, ((0, 0), (0, 2), (0, 1)), constant_values=0.7) for side in sides]
    inside = np.pad(everywhere, ((0, 0), (0, 2), (0, 1)))
    halves = [tuple(table[part] for table in (*padded, inside)) for part in (slice(2), slice(2, 6))]
    found = Calibration.fit(halves)
    for side in ("forward", "backward"):
        for what in ("shift", "slope"):
            assert getattr(getattr(found, side), what) == pytest.approx(getattr(getattr(whole, side), what))
    assert found.threshold == pytest.approx(whole.threshold)
    probs = whole.probs(*sides, everywhere).ravel()
    assert whole.threshold == best_threshold(probs[probs > 1e-3])
    swapped = Calibration.fit([(sides[1], sides[0], everywhere)])
    assert (swapped.forward, swapped.backward) == (whole.backward, whole.forward)
    assert whole.forward != whole.backward


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
    assert Calibration.mean([(one, 0.0), (other, 0.0)]).threshold == 0.0  # nothing was learnt from


def test_a_judge_that_denies_everything_does_no_harm():
    probs = np.concatenate([np.full(5000, 0.999999), np.linspace(0.01, 0.99, 50)])
    found = CalibrationCurve.fit(probs, np.zeros_like(probs))
    assert np.isfinite([found.shift, found.slope]).all()
    assert found(np.array([0.999999])) < 0.1
