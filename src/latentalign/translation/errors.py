"""Word and phone error rates of what a model writes, with confidence intervals.

The word error rate is the share of outputs that differ from their reference anywhere. The phone error rate is the
number of phones (in general: words between white space) that have to be changed, added or removed, over the number of
phones in the references.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

RESAMPLES = 1000
CONFIDENCE = 0.95


def error_rates(found: Sequence[str], references: Sequence[str], *, seed: int = 0) -> dict[str, Any]:
    """Both rates in percent, each with the interval that a bootstrap over the outputs gives."""
    edits, lengths = edit_distances(found, references)
    ones = np.ones_like(lengths)
    return {
        "word_error": _percent(edits > 0, ones),
        "word_error_interval": _interval(edits > 0, ones, seed),
        "phone_error": _percent(edits, lengths),
        "phone_error_interval": _interval(edits, lengths, seed),
    }


def edit_distances(found: Sequence[str], references: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """For every output the phones to be changed, added or removed, and those of its reference."""
    from rapidfuzz.distance import Levenshtein

    pairs = [(one.split(), other.split()) for one, other in zip(found, references, strict=True)]
    edits = np.array([Levenshtein.distance(one, other) for one, other in pairs])
    return edits, np.array([len(other) for _, other in pairs])


def _percent(errors: np.ndarray, counts: np.ndarray) -> float:
    return 100.0 * float(errors.sum()) / max(float(counts.sum()), 1.0)


def _interval(errors: np.ndarray, counts: np.ndarray, seed: int) -> list[float] | None:
    """A percentile bootstrap; None for a single output, of which nothing can be said."""
    from scipy.stats import bootstrap

    if len(counts) < 2:
        return None
    result = bootstrap(
        (errors.astype(float), counts.astype(float)),
        lambda e, n, axis: 100.0 * e.sum(axis) / n.sum(axis),
        paired=True,
        vectorized=True,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return [round(float(bound), 4) for bound in result.confidence_interval]
