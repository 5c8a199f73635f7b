"""Text to pieces and back, with the word every piece belongs to.

Words are separated by white space. Words are segmented one by one, so the map from pieces to words is
exact whatever the pieces look like, and decoding gives back every word as it was. Text whose pieces are characters
(`characters.py`) has every character as a word of its own.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

from latentalign.errors import UserError

PAD, UNKNOWN, START, END = 0, 1, 2, 3
NEVER = [PAD, START]  # what no sentence contains
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")

SPACE_MARK = "\u2581"  # sentencepiece's own mark at the start of a word
ESCAPED_MARK = "\U0010fffd"  # the same character in the text; a private code point nobody uses
_LONGEST_CACHED = 64  # characters; what is longer is noise that does not come again


class Tokenizer(ABC):
    """Pieces of one language: numbers 0..len−1, the first four being `SPECIALS`."""

    # words kept with their pieces: text follows Zipf's law, nearly every word is found here
    cache_limit = 2_000_000

    def __init__(self, pieces: Sequence[str], surfaces: Sequence[bytes], starts: Sequence[bool]) -> None:
        self.pieces = list(pieces)
        self._surfaces = list(surfaces)
        self._starts = list(starts)
        self._cache: dict[str, tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self.pieces)

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What `vocabulary.json` says of this tokenizer."""

    def words(self, sentence: str) -> list[str]:
        """What links join: the words of a sentence."""
        return sentence.split()

    @abstractmethod
    def _segment(self, word: str) -> tuple[int, ...]:
        """The pieces of one word, at least one."""

    def encode_word(self, word: str) -> tuple[int, ...]:
        """The pieces of one word (no white space inside)."""
        ids = self._cache.get(word)
        if ids is None:
            ids = self._segment(word)
            if len(self._cache) < self.cache_limit and len(word) <= _LONGEST_CACHED:
                self._cache[word] = ids
        return ids

    def encode(self, sentence: str) -> list[int]:
        """The pieces of a sentence, without start and end marks."""
        ids: list[int] = []
        for word in self.words(sentence):
            ids.extend(self._cache.get(word) or self.encode_word(word))
        return ids

    def encode_words(self, sentence: str) -> tuple[list[int], list[int]]:
        """The pieces of a sentence and, for every piece, the index of its word in ``words(sentence)``."""
        ids: list[int] = []
        words: list[int] = []
        for index, word in enumerate(self.words(sentence)):
            found = self.encode_word(word)
            ids.extend(found)
            words.extend([index] * len(found))
        return ids, words

    def decode_words(self, ids: Iterable[int]) -> tuple[list[str], list[int]]:
        """The words that the pieces spell, and the word of every piece (−1: of none, as end marks)."""
        groups: list[bytearray] = []
        group_of: list[int] = []
        for number in ids:
            if number in (PAD, START, END):
                group_of.append(-1)
                continue
            if self._starts[number] or not groups:
                groups.append(bytearray())
            groups[-1] += self._surfaces[number]
            group_of.append(len(groups) - 1)
        # bytes a model made up may spell white space or nothing at all: a word has neither
        texts = ["".join(group.decode("utf-8", errors="replace").split()) for group in groups]
        texts = [text.replace(ESCAPED_MARK, SPACE_MARK) for text in texts]
        before = [0, *accumulate(bool(text) for text in texts)]  # words up to every group
        index_of = [before[group] if text else -1 for group, text in enumerate(texts)]
        words = [text for text in texts if text]
        return words, [index_of[group] if group >= 0 else -1 for group in group_of]

    def decode(self, ids: Iterable[int]) -> str:
        """The text that the pieces spell."""
        return " ".join(self.decode_words(ids)[0])


class WhitespaceTokenizer(Tokenizer):
    """Every word is a piece; words outside the vocabulary are unknown."""

    def __init__(self, words: Sequence[str]) -> None:
        pieces = [*SPECIALS, *words]
        super().__init__(pieces, [piece.encode() for piece in pieces], [True] * len(pieces))
        self._index = {word: number + len(SPECIALS) for number, word in enumerate(words)}

    @property
    def settings(self) -> dict[str, Any]:
        return {"kind": "whitespace", "words": self.pieces[len(SPECIALS) :]}

    def _segment(self, word: str) -> tuple[int, ...]:
        return (self._index.get(word, UNKNOWN),)


class BpeTokenizer(Tokenizer):
    """A sentencepiece model, narrowed to the pieces that one language uses.

    `kept` are numbers of the sentencepiece model; a piece outside of them is spelt with shorter ones, so that
    a joint model does not give every language the other's vocabulary to choose from.
    """

    def __init__(self, model: bytes, kept: Sequence[int] | None = None) -> None:
        import sentencepiece

        self.model = model
        if not model:
            raise UserError("tokenizer: expected a sentencepiece model, found an empty file")
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except (RuntimeError, TypeError):
            raise UserError("tokenizer: expected a sentencepiece model, found something else") from None
        processor = self._processor
        self.kept = list(range(len(processor))) if kept is None else list(kept)
        pieces = [processor.id_to_piece(number) for number in self.kept]
        self._number = {kept: number for number, kept in enumerate(self.kept)}
        self._of_piece = {piece: number for number, piece in enumerate(pieces) if number >= len(SPECIALS)}
        byte = [processor.is_byte(number) for number in self.kept]
        surfaces = [_surface(piece, is_byte) for piece, is_byte in zip(pieces, byte, strict=True)]
        surfaces[UNKNOWN] = "⁇".encode()
        starts = [piece.startswith(SPACE_MARK) and not b for piece, b in zip(pieces, byte, strict=True)]
        super().__init__(pieces, surfaces, starts)
        self._longest = max(len(piece) for piece in pieces)

    @property
    def settings(self) -> dict[str, Any]:
        return {"kind": "bpe", "pieces": self.kept}

    def _segment(self, word: str) -> tuple[int, ...]:
        numbers = self._processor.encode(word.replace(SPACE_MARK, ESCAPED_MARK))
        result: list[int] = []
        for number in numbers:
            known = self._number.get(number)
            result.extend(
                (known,) if known is not None else self._respell(self._processor.id_to_piece(number))
            )
        return tuple(result)

    def _respell(self, piece: str) -> list[int]:
        """Longest pieces first, from the left; single characters are always there."""
        result: list[int] = []
        start = 0
        while start < len(piece):
            for end in range(min(len(piece), start + self._longest), start, -1):
                number = self._of_piece.get(piece[start:end])
                if number is not None:
                    break
            else:
                number, end = UNKNOWN, start + 1
            result.append(number)
            start = end
        return result


def _surface(piece: str, is_byte: bool) -> bytes:
    if is_byte:
        return bytes([int(piece[3:5], 16)])
    return piece.removeprefix(SPACE_MARK).encode()
