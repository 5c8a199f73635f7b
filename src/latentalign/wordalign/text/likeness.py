"""Words that look alike: Dice's coefficient of their letter trigrams."""

import unicodedata
import zlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

_WORDS_OF_BITS = 4  # a signature has 256 bits
_LETTERS = str.maketrans("kz", "cc")


@lru_cache(maxsize=200_000)
def trigrams(word: str) -> frozenset[str]:
    """The trigrams of ``<word>`` without accents; k, z and c are one letter (Kapital, capital)."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))
    marked = f"<{plain.translate(_LETTERS)}>"
    return frozenset(marked[i : i + 3] for i in range(max(1, len(marked) - 2)))


def dice(one: frozenset[str], other: frozenset[str]) -> float:
    return 2 * len(one & other) / (len(one) + len(other))


def likeness(
    words: tuple[Sequence[str], Sequence[str]], pairs: tuple[np.ndarray, np.ndarray], *, least: float
) -> tuple[np.ndarray, np.ndarray]:
    """(which of the pairs, their dice) for every pair of words with a dice of at least `least`.

    Few pairs look alike. Signatures of 256 bits rule out the others without a mistake: the trigrams that two words
    share are at most the bits they share, plus those that fell on a bit already taken in the poorer of the two.
    """
    grams = [[trigrams(word) for word in side] for side in words]
    (bits, sizes, lost), (other_bits, other_sizes, other_lost) = (_signatures(side) for side in grams)
    found, values = [], []
    for begin in range(0, len(pairs[0]), 1 << 20):
        f, e = (side[begin : begin + (1 << 20)] for side in pairs)
        shared = np.minimum(lost[f], other_lost[e])
        for column in range(_WORDS_OF_BITS):
            shared += np.bitwise_count(bits[f, column] & other_bits[e, column])
        for number in np.flatnonzero(2 * shared >= least * (sizes[f] + other_sizes[e])):
            value = dice(grams[0][f[number]], grams[1][e[number]])
            if value >= least:
                found.append(begin + int(number))
                values.append(value)
    return np.array(found, dtype=np.int64), np.array(values)


def _signatures(grams: Sequence[frozenset[str]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bits [V,4], number of trigrams [V], and how many of them fell on a bit that was taken [V]."""
    numbers: dict[str, int] = {}
    bits = np.zeros((len(grams), _WORDS_OF_BITS), dtype=np.uint64)
    sizes = np.array([len(side) for side in grams], dtype=np.int16)
    owner = np.repeat(np.arange(len(grams)), sizes)
    gram = np.array([_bit(g, numbers) for side in grams for g in side], dtype=np.int64)
    np.bitwise_or.at(bits, (owner, gram // 64), np.uint64(1) << (gram % 64).astype(np.uint64))
    return bits, sizes, sizes - np.bitwise_count(bits).sum(axis=1).astype(np.int16)


def _bit(gram: str, numbers: dict[str, int]) -> int:
    # a checksum is the same in every process, unlike hash()
    found = numbers.get(gram)
    if found is None:
        found = numbers[gram] = zlib.crc32(gram.encode()) % (64 * _WORDS_OF_BITS)
    return found
