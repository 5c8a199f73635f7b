"""Text whose pieces are characters, as the letters of a word that is to be pronounced.

Unicode writes one letter in several ways, so text is brought to a normal form first (NFC: composed, unless another is
chosen). A combining character then stays with the letter before it, as one piece: an extended grapheme cluster. With
`combine=False` every code point is a piece of its own: in the decomposed form NFD letters and their marks, and the
sounds (jamo) that a Korean syllable is composed of.
"""

import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal

import regex

from latentalign.translation.data.tags import split_tag
from latentalign.translation.data.tokenizer import END, PAD, SPECIALS, START, UNKNOWN, Tokenizer

NormalForm = Literal["NFC", "NFD", "NFKC", "NFKD"]


def characters(
    text: str, *, form: NormalForm = "NFC", combine: bool = True, tags: Collection[str] = ()
) -> list[str]:
    """The characters of a text; white space inside is one blank, around it there is none.

    A text may begin with a tag of one of these names, which is one piece.
    """
    tag, rest = split_tag(text, tags)
    normal = unicodedata.normalize(form, " ".join(rest.split()))
    return tag + (regex.findall(r"\X", normal) if combine else list(normal))


class CharacterTokenizer(Tokenizer):
    """Every character is a piece; those never seen in training are unknown."""

    def __init__(
        self,
        known: Sequence[str],
        *,
        form: NormalForm = "NFC",
        combine: bool = True,
        tags: Collection[str] = (),
    ) -> None:
        pieces = [*SPECIALS, *known]
        super().__init__(pieces, [piece.encode() for piece in pieces], [True] * len(pieces))
        self.form, self.combine, self._tags = form, combine, frozenset(tags)
        self._index = {piece: number for number, piece in enumerate(pieces) if number >= len(SPECIALS)}

    @property
    def settings(self) -> dict[str, Any]:
        known = self.pieces[len(SPECIALS) :]
        return {"kind": "characters", "characters": known, "form": self.form, "combine": self.combine}

    def words(self, sentence: str) -> list[str]:
        return characters(sentence, form=self.form, combine=self.combine, tags=self._tags)

    def _segment(self, word: str) -> tuple[int, ...]:
        return (self._index.get(word, UNKNOWN),)

    def decode_words(self, ids: Iterable[int]) -> tuple[list[str], list[int]]:
        """The characters, and the index of every piece's own (−1: of none, as end marks)."""
        found: list[str] = []
        index: list[int] = []
        for number in ids:
            is_mark = number in (PAD, START, END)
            index.append(-1 if is_mark else len(found))
            if not is_mark:
                found.append(self.pieces[number])
        return found, index

    def decode(self, ids: Iterable[int]) -> str:
        """The text, composed again."""
        return unicodedata.normalize("NFC", "".join(self.decode_words(ids)[0]))
