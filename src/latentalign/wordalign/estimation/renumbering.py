"""Counts over one pair of vocabularies as counts over another: what merging and updating need."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from latentalign.wordalign.estimation.counts import Counts, JumpCounts, SparseCounts, pair_keys
from latentalign.wordalign.estimation.model import Vocabularies
from latentalign.wordalign.text.vocabulary import WordVocabulary


def joined(vocabularies: Sequence[WordVocabulary]) -> WordVocabulary:
    """All words of several vocabularies, with the sums of their counts."""
    total: Counter[str] = Counter()
    for vocabulary in vocabularies:
        for word, count in zip(vocabulary.words, vocabulary.counts.tolist(), strict=True):
            total[word] += count
    return WordVocabulary.ranked(total)


def renumbered(counts: Counts, old: Vocabularies, new: Vocabularies) -> Counts:
    """The same counts, over vocabularies that contain the old ones."""
    places = tuple(
        np.array([after.index[word] for word in before.words], dtype=np.int64)
        for before, after in zip(old, new, strict=True)
    )
    forward = _links(counts.links[0], places)
    backward = forward if counts.links[0] is counts.links[1] else _links(counts.links[1], places)
    return Counts(
        (forward, backward),
        (_spread(counts.null[0], places[1], len(new[1])), _spread(counts.null[1], places[0], len(new[0]))),
        (_jumps(counts.jumps[0], places[0]), _jumps(counts.jumps[1], places[1])),
        counts.pairs,
        counts.words,
        counts.log_likelihood,
    )


def _links(counts: SparseCounts, places: tuple[np.ndarray, ...]) -> SparseCounts:
    return SparseCounts.collect(
        pair_keys(places[0][counts.sources], places[1][counts.targets]), counts.values
    )


def _spread(values: np.ndarray, places: np.ndarray, size: int) -> np.ndarray:
    spread = np.zeros(size)
    spread[places] = values
    return spread


def _jumps(counts: JumpCounts, places: np.ndarray) -> JumpCounts:
    """A frequent word has a class of its own; one that is no longer frequent enough joins the class of the rest."""
    rest = len(counts.taken) - 2
    taken, exposure = np.zeros_like(counts.taken), np.zeros_like(counts.exposure)
    classes = np.append(np.full(rest + 1, rest), rest + 1)  # words, the rest, the start
    words = np.minimum(places[:rest], rest)
    classes[: len(words)] = words
    np.add.at(taken, classes, counts.taken)
    np.add.at(exposure, classes, counts.exposure)
    return JumpCounts(taken, exposure)
