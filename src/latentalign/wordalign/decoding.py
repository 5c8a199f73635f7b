"""From the probabilities of one pair to its links."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from latentalign.errors import UserError
from latentalign.text.links import Link
from latentalign.text.symmetrise import SYMMETRISATIONS, decode_links, grow_diag_final_and, symmetrise

# Shares of the threshold. A word nearly always has a link, and seldom several: its first link is likelier to be right
# than its probability says, a further link less likely.
_FIRST, _FURTHER = 2 / 3, 4 / 3


@dataclass(frozen=True)
class PairPosteriors:
    """What the aligner says about one pair. Matrices are [target words, source words]."""

    source_words: list[str]
    target_words: list[str]
    forward: np.ndarray  # posterior of target given source: rows sum to at most 1
    backward: np.ndarray  # posterior of source given target: columns sum to at most 1
    probs: np.ndarray  # the calibrated probability of each link
    threshold: float  # the aligner's own
    score: float  # how much better than chance the sides explain each other, per word; bad pairs are lowest
    unknown: int = 0  # words that the aligner has never seen
    skipped: bool = False  # too long to be aligned

    def links(self, method: str = "mean", threshold: float | None = None) -> dict[Link, float]:
        """The links (source word, target word) by one of `METHODS`, with their probabilities."""
        check_method(method)
        check_threshold(threshold)
        found = METHODS[method](self, threshold)
        return {(i, j): float(self.probs[j, i]) for i, j in sorted(found)}


LinkMethod = Callable[[PairPosteriors, float | None], "set[Link] | frozenset[Link]"]


def _mean(pair: PairPosteriors, threshold: float | None) -> set[Link] | frozenset[Link]:
    """Links of at least the threshold. By the aligner's own, a word's first link needs less, a further one more."""
    if threshold is not None:
        return set(decode_links(pair.probs, threshold=threshold))
    weak = decode_links(pair.probs, threshold=_FIRST * pair.threshold)
    strong = frozenset(link for link, probability in weak.items() if probability >= _FURTHER * pair.threshold)
    return strong if len(strong) == len(weak) else grow_diag_final_and(strong, frozenset(weak))


def _forward(pair: PairPosteriors, threshold: float | None) -> set[Link]:
    return set(decode_links(pair.forward, threshold=threshold))


def _backward(pair: PairPosteriors, threshold: float | None) -> set[Link]:
    return {(i, j) for j, i in decode_links(pair.backward.T, threshold=threshold)}


def _combined(name: str) -> LinkMethod:
    def combine(pair: PairPosteriors, threshold: float | None) -> set[Link]:
        return set(symmetrise(pair.forward, pair.backward.T, name, threshold=threshold))

    return combine


METHODS: dict[str, LinkMethod] = {
    "mean": _mean,
    **{name: _combined(name) for name in SYMMETRISATIONS},
    "forward": _forward,
    "backward": _backward,
}


def check_method(name: str) -> None:
    if name not in METHODS:
        raise UserError(f"symmetrise: expected one of {', '.join(METHODS)}, got {name!r}")


def check_threshold(threshold: float | None) -> None:
    if threshold is not None and not 0.0 <= threshold <= 1.0:
        raise UserError(f"threshold: expected a probability between 0 and 1, got {threshold:g}")
