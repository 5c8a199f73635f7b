"""Words and answers as numbers, and what is written of them into the run folder."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from latentalign.memory.stories import Story, split_words

PAD, UNKNOWN = 0, 1  # of words; an unknown word is a vector of zeros: it says nothing
UNKNOWN_ANSWER = 0  # an answer never seen in training: it cannot be given, only counted


@dataclass(frozen=True)
class Vocabulary:
    """The words of facts, questions and answers, and the answers as wholes."""

    words: tuple[str, ...]
    answers: tuple[str, ...]

    @classmethod
    def collect(cls, stories: Iterable[Story]) -> "Vocabulary":
        """In order of first appearance, so that the same stories give the same numbers."""
        words: dict[str, None] = {"<pad>": None, "<unknown>": None}
        answers: dict[str, None] = {"<unknown>": None}
        for story in stories:
            for fact in story.facts:
                words.update(dict.fromkeys(fact.words))
            for question in story.questions:
                words.update(dict.fromkeys(question.words))
                words.update(dict.fromkeys(split_words(question.answer)))
                answers[question.answer] = None
        return cls(tuple(words), tuple(answers))

    @cached_property
    def word_number(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    @cached_property
    def answer_number(self) -> dict[str, int]:
        return {answer: number for number, answer in enumerate(self.answers)}

    def encode(self, words: Iterable[str]) -> list[int]:
        return [self.word_number.get(word, UNKNOWN) for word in words]

    def encode_answer(self, answer: str) -> int:
        return self.answer_number.get(answer, UNKNOWN_ANSWER)

    @cached_property
    def answer_words(self) -> list[list[int]]:
        """The words of every answer; of an answer such as 'n,e' two."""
        return [[], *(self.encode(split_words(answer)) for answer in self.answers[1:])]
