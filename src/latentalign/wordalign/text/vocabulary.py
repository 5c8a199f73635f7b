"""The words of one language with their frequencies, and their affixes."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

Units = Sequence[str]
_FREQUENCIES = 12  # seen once, 2–3 times, 4–7 times …
BANDS = 3 * _FREQUENCIES  # words with letters, numbers, other signs
Cut = slice  # which letters of a word make an affix


@dataclass(frozen=True)
class WordVocabulary:
    """Words, the most frequent first, and how often each was seen."""

    words: list[str]
    counts: np.ndarray  # [V] int64

    @classmethod
    def of(cls, sentences: Iterable[Units]) -> "WordVocabulary":
        return cls.ranked(Counter(chain.from_iterable(sentences)))

    @classmethod
    def ranked(cls, counts: Counter[str]) -> "WordVocabulary":
        # by frequency, then by spelling: the order of the sentences leaves no trace
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return cls([word for word, _ in ranked], np.array([count for _, count in ranked], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def index(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    @cached_property
    def bands(self) -> np.ndarray:
        """The band of every word [V]: how often it is seen, and what it is made of."""
        frequency = np.minimum(np.log2(self.counts).astype(np.int64), _FREQUENCIES - 1)
        return frequency + np.array([_shape(word) for word in self.words], dtype=np.int64) * _FREQUENCIES

    @cached_property
    def _affixes(self) -> dict[str, "Affixes"]:
        return {}

    def affixes(self, cut: Cut) -> "Affixes":
        """The affixes by this cut, found once."""
        name = f"{cut.start}:{cut.stop}"
        if name not in self._affixes:
            self._affixes[name] = Affixes.of(self, cut)
        return self._affixes[name]


def _shape(word: str) -> int:
    if any(letter.isalpha() for letter in word):
        return 0
    return 1 if any(letter.isdigit() for letter in word) else 2


@dataclass(frozen=True)
class Affixes:
    """The affixes of a vocabulary's words by one cut: their numbers, and how often each was seen."""

    cut: Cut
    index: dict[str, int]
    of_word: np.ndarray  # [V] int64
    counts: np.ndarray  # [number of affixes]

    @classmethod
    def of(cls, vocabulary: WordVocabulary, cut: Cut) -> "Affixes":
        index: dict[str, int] = {}
        of_word = np.array(
            [index.setdefault(word[cut], len(index)) for word in vocabulary.words], dtype=np.int64
        )
        return cls(cut, index, of_word, np.bincount(of_word, weights=vocabulary.counts, minlength=len(index)))

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True)
class WordList:
    """Some words of one language by number; numbers from the vocabulary's size on are words it does not know."""

    vocabulary: WordVocabulary
    numbers: np.ndarray  # [n] int64, ascending
    unknown: list[str]  # the last words of the list

    def __len__(self) -> int:
        return len(self.numbers)

    @cached_property
    def known(self) -> np.ndarray:
        return self.numbers[: len(self.numbers) - len(self.unknown)]

    @cached_property
    def spellings(self) -> list[str]:
        words = self.vocabulary.words
        return [*(words[number] for number in self.known), *self.unknown]

    def pick(self, values: np.ndarray) -> np.ndarray:
        """The words' entries of an array over the vocabulary; 0 for unknown words."""
        return np.concatenate([values[self.known], np.zeros(len(self.unknown), values.dtype)])

    def affixes(self, cut: Cut) -> np.ndarray:
        """The numbers of the words' affixes; unknown ones are numbered beyond all known."""
        affixes = self.vocabulary.affixes(cut)
        beyond = len(affixes)
        unknown = [affixes.index.get(word[cut], beyond) for word in self.unknown]
        return np.concatenate([affixes.of_word[self.known], np.array(unknown, dtype=np.int64)])

    def shares(self, cut: Cut) -> np.ndarray:
        """n(word) / n(affix): how much of an affix's occurrences are this word's. A new word is as if seen once."""
        affixes = self.vocabulary.affixes(cut)
        numbers = self.affixes(cut)
        counts = np.append(affixes.counts, 0.0)[numbers]
        seen = self.pick(self.vocabulary.counts).astype(float)
        new = np.arange(len(self)) >= len(self.known)
        return np.where(new, 1.0 / (counts + 1.0), seen / np.maximum(counts, 1.0))

    @property
    def bands(self) -> np.ndarray:
        """Bands of the words; a new word is as rare as the rarest."""
        new = [_shape(word) * _FREQUENCIES for word in self.unknown]
        return np.concatenate([self.vocabulary.bands[self.known], np.array(new, dtype=np.int64)])

    @property
    def band_shares(self) -> np.ndarray:
        """n(word) / n(all words of its band)."""
        counts = np.bincount(self.vocabulary.bands, weights=self.vocabulary.counts, minlength=BANDS)
        seen = np.maximum(self.pick(self.vocabulary.counts), 1)
        return seen / np.maximum(counts, 1.0)[self.bands]
