"""The word links of one sentence pair, found by a run or by an aligner."""

from dataclasses import dataclass

import numpy as np

from latentalign.text.links import Link, format_links


@dataclass(frozen=True)
class AlignedPair:
    """Links (source word, target word), counted from 0, each with its probability.

    Example:
        >>> pair = AlignedPair(["ein", "Hund"], ["a", "dog"], {(0, 0): 0.9, (1, 1): 0.8}, np.eye(2))
        >>> print(pair)
        0-0 1-1
    """

    source_words: list[str]
    target_words: list[str]
    links: dict[Link, float]
    probs: np.ndarray  # [target words, source words]; the rest of a row is on the null word
    score: float | None = None  # mean log-probability of a target piece given the source, where asked for

    def __str__(self) -> str:
        return format_links(self.links)


def with_null_word(probs: np.ndarray) -> np.ndarray:
    """Rows [target words, source words] with the probability of the null word as a last column."""
    rest = np.clip(1.0 - probs.sum(axis=1, keepdims=True), 0.0, 1.0)
    return np.concatenate([probs, rest], axis=1)
