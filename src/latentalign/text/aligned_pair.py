"""The word links of one sentence pair, whoever found them."""

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
    probs: np.ndarray  # [target words, source words]; what a row lacks to 1 is the probability of no word
    score: float | None = None  # mean log-probability of a target piece given the source, where asked for

    def __str__(self) -> str:
        return format_links(self.links)
