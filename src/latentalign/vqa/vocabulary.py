"""Words of questions and the answers a model chooses from."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from latentalign.errors import UserError
from latentalign.files import read_lines
from latentalign.vqa.files import VqaExample

_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")
PADDING, UNKNOWN = 0, 1
_SPECIAL = ("<pad>", "<unk>")


def split_words(text: str) -> list[str]:
    """Lower-case words of a question; punctuation separates."""
    return _WORD.findall(text.lower().replace("’", "'"))


@dataclass(frozen=True)
class Words:
    """Words of questions by number; 0 pads, 1 stands for any other word."""

    words: tuple[str, ...]

    @classmethod
    def collect(cls, questions: Iterable[str], *, minimum: int = 1) -> "Words":
        counts = Counter(word for question in questions for word in split_words(question))
        return cls((*_SPECIAL, *sorted(word for word, count in counts.items() if count >= minimum)))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, question: str, *, limit: int) -> list[int]:
        """Numbers of at most `limit` words; never empty, so that every question has a last word."""
        numbers = [self._numbers.get(word, UNKNOWN) for word in split_words(question)[:limit]]
        return numbers or [UNKNOWN]

    def load_vectors(self, path: str | Path, dim: int) -> tuple[Tensor, int]:
        """Pretrained vectors from text (a word and `dim` numbers a line) and how many words had one.

        Words without a vector get small random ones; a first line with two counts (word2vec) is skipped.
        """
        vectors = torch.randn(len(self), dim) * 0.1
        vectors[PADDING] = 0
        found = 0
        for number, line in enumerate(read_lines(path), start=1):
            word, *values = line.rstrip().split(" ")
            if number == 1 and len(values) == 1:
                continue
            if len(values) != dim:
                raise UserError(
                    f"{path}, line {number}: expected a word and {dim} numbers, received {len(values)}; "
                    "set model.word_dim to the size of the vectors"
                )
            row = self._numbers.get(word)
            if row is None or row in (PADDING, UNKNOWN):
                continue
            try:
                vectors[row] = torch.tensor([float(value) for value in values])
            except ValueError:
                raise UserError(f"{path}, line {number}: expected numbers after {word!r}") from None
            found += 1
        return vectors, found


@dataclass(frozen=True)
class Answers:
    """The answers a model chooses from, commonest first."""

    answers: tuple[str, ...]

    @classmethod
    def collect(cls, examples: Sequence[VqaExample], *, minimum: int) -> "Answers":
        """Main answers of at least `minimum` questions."""
        counts = Counter(example.main_answer for example in examples if example.main_answer)
        kept = sorted((answer for answer, n in counts.items() if n >= minimum), key=lambda a: (-counts[a], a))
        if not kept:
            commonest = counts.most_common(1)
            best = (
                f"the commonest is {commonest[0][0]!r} with {commonest[0][1]}"
                if commonest
                else "all are empty"
            )
            raise UserError(
                f"data.min_answer_count: no answer of {len(examples)} questions occurs {minimum} times "
                f"({best}); choose a smaller count"
            )
        return cls(tuple(kept))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {answer: number for number, answer in enumerate(self.answers)}

    def __len__(self) -> int:
        return len(self.answers)

    def number(self, answer: str) -> int:
        """Number of a normalised answer, −1 if it was not kept."""
        return self._numbers.get(answer, -1)
