"""What the aligner reads of a line: words as units, and the word of the input that each unit belongs to.

Words of the input are separated by white space; links always refer to them. The built-in tokeniser splits
signs off words, and writing without spaces (Chinese, Japanese, Thai, …) into characters, each of which counts as a
word of the input. Units are compared without regard to case.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

# Thai, Lao, Tibetan, Burmese, Khmer, kana, Han
_UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
_INNER = frozenset("-‐‑")  # between letters they are part of a word


@dataclass(frozen=True)
class Line:
    """A sentence: the words of the input, and units of the aligner, each with the number of its word."""

    words: list[str]
    units: list[str]
    word_of: list[int]


def read_line(text: str, *, tokenise: bool) -> Line:
    """A line by white space alone, or by the built-in tokeniser."""
    if not tokenise:
        words = text.split()
        return Line(words, [fold(word) for word in words], list(range(len(words))))
    words, units, word_of = list[str](), list[str](), list[int]()
    for chunk in text.split():
        for word, parts in _divide(chunk):
            units.extend(parts)
            word_of.extend([len(words)] * len(parts))
            words.append(word)
    return Line(words, units, word_of)


@lru_cache(maxsize=200_000)
def fold(word: str) -> str:
    """One spelling for upper and lower case, and for composed and decomposed letters."""
    return word.casefold() if word.isascii() else unicodedata.normalize("NFC", word.casefold())


@lru_cache(maxsize=200_000)
def _divide(chunk: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The words of a text without white space (one, unless its script has no spaces), each with its units."""
    words = _characters(chunk) if _UNSPACED.search(chunk) else [chunk]
    return tuple((word, tuple(fold(unit) for unit in _units(word))) for word in words)


def _characters(chunk: str) -> list[str]:
    """Characters of scripts without spaces, with the marks that belong to them; runs of other letters stay whole."""
    found: list[str] = []
    run = False  # whether the last piece is a run of other letters
    for letter in chunk:
        unspaced = bool(_UNSPACED.match(letter))
        if found and (_is_mark(letter) or (run and not unspaced)):
            found[-1] += letter
        else:
            found.append(letter)
            run = not unspaced
    return found


def _units(word: str) -> list[str]:
    """Runs of letters, marks and digits, hyphens inside included; every other sign by itself."""
    found: list[str] = []
    joining = False
    for place, letter in enumerate(word):
        inner = letter in _INNER and joining and place + 1 < len(word) and word[place + 1].isalnum()
        part = inner or letter.isalnum() or letter == "_" or _is_mark(letter)
        if part and joining:
            found[-1] += letter
        else:
            found.append(letter)
        joining = part
    return found


def _is_mark(letter: str) -> bool:
    return unicodedata.category(letter).startswith("M")
