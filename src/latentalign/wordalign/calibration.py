"""Calibrated probabilities of links and a threshold, both without gold links.

The posteriors of a direction are overconfident: its model takes words as independent. The other direction makes other
mistakes. So a direction's probability u is replaced by the other's mean probability of links with that u: a logistic
curve in log-odds, fitted to the other direction's probabilities. The probability of a link is the mean of both curves.
A direction gives each word one link only. A further link of that word counts there as the other direction's probability
times that of the link beside it.
The threshold is the one with the greatest expected F-measure under these probabilities.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

_LEAST = 1e-3  # smaller probabilities are not worth fitting
_EDGE = 1e-6


@dataclass(frozen=True)
class CalibrationCurve:
    """p = σ(shift + slope · log-odds of u)."""

    shift: float = 0.0
    slope: float = 1.0

    def __call__(self, probs: np.ndarray) -> np.ndarray:
        return _logistic(self.shift + self.slope * _log_odds(probs))

    @classmethod
    def fit(cls, probs: np.ndarray, judged: np.ndarray) -> "CalibrationCurve":
        """The likeliest curve through (probability, what the other says); p = u where there is nothing to see."""
        worth = probs > _LEAST
        inputs = np.stack([np.ones(worth.sum()), _log_odds(probs[worth])])
        target = judged[worth]
        start = np.array([0.0, 1.0])

        def gain(curve: np.ndarray) -> float:
            odds = curve @ inputs
            return float((target * odds - np.logaddexp(0.0, odds)).sum() - ((curve - start) ** 2).sum() / 2)

        found = start.copy()
        for _ in range(50):  # Newton's steps, shortened where they would overshoot
            predicted = _logistic(found @ inputs)
            slope = inputs @ (target - predicted) - (found - start)
            curvature = (inputs * (predicted * (1 - predicted))) @ inputs.T + np.eye(2)
            step = np.linalg.solve(curvature, slope)
            while gain(found + step) < gain(found) and np.abs(step).max() > 1e-9:
                step /= 2
            found += step
            if np.abs(step).max() < 1e-9:
                break
        return cls(float(found[0]), float(max(found[1], 0.0)))


def _logistic(odds: np.ndarray) -> np.ndarray:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(odds, -50.0, 50.0))))


def _log_odds(probs: np.ndarray) -> np.ndarray:
    inner = np.clip(probs, _EDGE, 1 - _EDGE, dtype=np.float64)
    return np.asarray(np.log(inner) - np.log1p(-inner))


@dataclass(frozen=True)
class Calibration:
    """The curves of target given source and source given target, and the threshold of a link."""

    forward: CalibrationCurve = CalibrationCurve()
    backward: CalibrationCurve = CalibrationCurve()
    threshold: float = 0.5

    def probs(self, forward: np.ndarray, backward: np.ndarray, inside: np.ndarray) -> np.ndarray:
        """The probability of each link from the posteriors of both directions [B,T,S]; `inside` is False at padding."""
        one, other = self.forward(forward) * inside, self.backward(backward) * inside
        # a source word has one link in `backward`: the target word beside it may belong to the same source word
        vouched = one * _beside(other), other * _beside(one.swapaxes(1, 2)).swapaxes(1, 2)
        return np.asarray(1 - ((1 - one) * (1 - vouched[1]) + (1 - other) * (1 - vouched[0])) / 2)

    @classmethod
    def fit(cls, batches: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> "Calibration":
        """From posteriors of both directions and what is no padding, batch by batch."""
        matrices = list(batches)
        cells = [np.stack([forward[inside], backward[inside]]) for forward, backward, inside in matrices]
        if not cells:
            return cls()
        forward, backward = np.concatenate(cells, axis=1).astype(np.float64)
        curves = cls(CalibrationCurve.fit(forward, backward), CalibrationCurve.fit(backward, forward))
        probs = np.concatenate([curves.probs(*batch)[batch[-1]] for batch in matrices])
        return cls(curves.forward, curves.backward, best_threshold(probs[probs > _LEAST]))

    @classmethod
    def mean(cls, parts: list[tuple["Calibration", float]]) -> "Calibration":
        """The weighted mean of several."""
        total = sum(weight for _, weight in parts) or 1.0

        def average(of: str, what: str) -> float:
            return sum(weight * getattr(getattr(part, of), what) for part, weight in parts) / total

        forward, backward = (
            CalibrationCurve(average(side, "shift"), average(side, "slope"))
            for side in ("forward", "backward")
        )
        return cls(forward, backward, sum(weight * part.threshold for part, weight in parts) / total)


def _beside(probs: np.ndarray) -> np.ndarray:
    """The greater of the entries in the row before and the row after [B,T,S]."""
    beside = np.zeros_like(probs)
    beside[:, 1:] = probs[:, :-1]
    np.maximum(beside[:, :-1], probs[:, 1:], out=beside[:, :-1])
    return beside


def best_threshold(probs: np.ndarray) -> float:
    """Where the expected F-measure 2 Σ_{p ≥ θ} p / (number of p ≥ θ + Σ p) is greatest."""
    if not len(probs):
        return 0.5
    ordered = np.sort(probs)[::-1]
    expected = 2 * np.cumsum(ordered) / (np.arange(1, len(ordered) + 1) + ordered.sum())
    best = int(np.argmax(expected))
    following = ordered[best + 1] if best + 1 < len(ordered) else 0.0
    return float(np.clip((ordered[best] + following) / 2, 0.01, 0.99))
