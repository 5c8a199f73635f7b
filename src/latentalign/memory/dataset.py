"""Questions with the facts known when they were asked, as batches of tensors."""

import logging
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from latentalign.batching import cut
from latentalign.files import digest
from latentalign.memory.stories import Story
from latentalign.memory.vocabulary import PAD, UNKNOWN, UNKNOWN_ANSWER, Vocabulary

logger = logging.getLogger(__name__)
BUCKET = 50  # batches that are sorted by length together


@dataclass(frozen=True)
class MemoryExample:
    """A question with the facts that fit into the memory, oldest first."""

    facts: tuple[int, ...]  # rows of the sentence table
    question: int  # row of the sentence table
    answer: int
    support: tuple[int, ...]  # slots, in the order of the reasoning; () where not known
    pattern: str
    source: str
    place: str
    unknown: int  # words that are not in the vocabulary
    words: int


@dataclass(frozen=True)
class MemoryBatch:
    """B questions. Sentences are listed one after the other, without padding slots: facts, then questions."""

    sentences: Tensor  # [N+B,J] words
    mask: Tensor  # [B,S] bool
    age: Tensor  # [B,S]: 0 = the newest fact
    answers: Tensor  # [B,1]
    support: Tensor  # [B,P] slots in the order of the reasoning, −1 after the last
    supporting: Tensor  # [B,S] bool: any supporting fact
    unknown: tuple[int, ...]
    words: tuple[int, ...]
    groups: dict[str, tuple[str, ...]]  # further names under which accuracy is counted

    def __len__(self) -> int:
        return self.mask.shape[0]

    def to(self, device: torch.device | str) -> "MemoryBatch":
        moved = {
            item.name: getattr(self, item.name).to(device)
            for item in fields(self)
            if isinstance(getattr(self, item.name), Tensor)
        }
        return replace(self, **moved)

    @property
    def known_answers(self) -> Tensor:
        """Which answers [B,1] were seen in training and can be given."""
        return self.answers != UNKNOWN_ANSWER


class _SentenceTable:
    """Distinct sentences as rows of words; stories repeat themselves a lot."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.row: dict[tuple[str, ...], int] = {}
        self.rows: list[list[int]] = []
        self.strange: Counter[str] = Counter()

    def add(self, words: tuple[str, ...]) -> int:
        if words not in self.row:
            self.row[words] = len(self.rows)
            self.rows.append(self.vocabulary.encode(words))
        return self.row[words]

    def unknown(self, row: int) -> int:
        return self.rows[row].count(UNKNOWN)

    def tensor(self) -> Tensor:
        longest = max(map(len, self.rows), default=1)
        return torch.tensor([row + [PAD] * (longest - len(row)) for row in self.rows])


class StoryDataset:
    """Every question of some stories, encoded once; `detailed` asks for accuracy by pattern and source."""

    def __init__(
        self,
        stories: Sequence[Story],
        vocabulary: Vocabulary,
        *,
        memory: int,
        batch_size: int,
        bucket: bool = True,
        detailed: bool = False,
    ) -> None:
        self.batch_size, self.bucket, self.memory, self.detailed = batch_size, bucket, memory, detailed
        table = _SentenceTable(vocabulary)
        self.examples: list[MemoryExample] = []
        self.shortened = 0
        strange: Counter[str] = Counter()
        for story in stories:
            rows = [table.add(fact.words) for fact in story.facts]
            self._add_questions(story, rows, table)
            known = vocabulary.word_number
            for words in (item.words for part in (story.facts, story.questions) for item in part):
                strange.update(word for word in words if word not in known)
        self.table = table.tensor()
        self.lengths = (self.table != PAD).sum(dim=1)
        self.unknown_words = strange
        self.unknown_answers = sum(example.answer == UNKNOWN_ANSWER for example in self.examples)

    def _add_questions(self, story: Story, rows: list[int], table: _SentenceTable) -> None:
        for question in story.questions:
            first = max(0, question.known - self.memory)
            self.shortened += first > 0
            facts = tuple(rows[first : question.known])
            slots = tuple(fact - first for fact in question.support)
            # a fact that is no longer in the memory cannot be attended to: the rest would mislead
            support = slots if min(slots, default=0) >= 0 else ()
            row = table.add(question.words)
            everything = (*facts, row)
            self.examples.append(
                MemoryExample(
                    facts=facts,
                    question=row,
                    answer=table.vocabulary.encode_answer(question.answer),
                    support=support,
                    pattern=question.pattern,
                    source=story.source,
                    place=question.place,
                    unknown=sum(table.unknown(number) for number in everything),
                    words=sum(len(table.rows[number]) for number in everything),
                )
            )

    def remarks(self) -> list[str]:
        """What a user should know of the data, a line each."""
        lines = []
        if self.shortened:
            lines.append(
                f"{self.shortened} of {len(self)} questions come after more facts than the memory has slots "
                f"({self.memory}): only the newest facts are kept (raise data.memory to keep more)"
            )
        if self.unknown_words:
            common = ", ".join(word for word, _ in self.unknown_words.most_common(5))
            lines.append(
                f"{self.unknown_words.total()} words are not in the vocabulary and say nothing: {common}"
            )
        if self.unknown_answers:
            lines.append(
                f"{self.unknown_answers} answers were never seen in training and count as wrong, at the "
                "probability of the unknown answer"
            )
        return lines

    def __len__(self) -> int:
        return len(self.examples)

    def plan(self, epoch: int, seed: int) -> list[list[int]]:
        """Batches of question numbers: shuffled by epoch and seed, or by length and fixed for epoch < 0."""
        order = list(range(len(self.examples)))
        if epoch < 0:
            order.sort(key=self._facts)
            return cut(order, examples=self.batch_size)
        rng = random.Random(f"{seed}/{epoch}")
        rng.shuffle(order)
        if not self.bucket:
            return cut(order, examples=self.batch_size)
        width = self.batch_size * BUCKET
        batches = []
        for start in range(0, len(order), width):
            batches += cut(sorted(order[start : start + width], key=self._facts), examples=self.batch_size)
        rng.shuffle(batches)
        return batches

    def _facts(self, number: int) -> int:
        return len(self.examples[number].facts)

    def collate(self, indices: Sequence[int]) -> MemoryBatch:
        examples = [self.examples[index] for index in indices]
        rows = [row for example in examples for row in example.facts]
        rows += [example.question for example in examples]
        chosen = torch.tensor(rows)
        longest = int(self.lengths[chosen].max())
        counts = torch.tensor([len(example.facts) for example in examples])
        slots = torch.arange(int(counts.max()))
        mask = slots < counts[:, None]  # [B,S]
        depth = max(1, *(len(example.support) for example in examples))
        support = torch.tensor([(*e.support, *[-1] * (depth - len(e.support))) for e in examples])
        supporting = torch.zeros(len(examples), int(counts.max()) + 1, dtype=torch.bool)
        # the spare column: none
        supporting.scatter_(1, support.where(support >= 0, supporting.shape[1] - 1), True)
        return MemoryBatch(
            sentences=self.table[chosen, :longest],
            mask=mask,
            age=(counts[:, None] - 1 - slots).clamp_min(0),
            answers=torch.tensor([[example.answer] for example in examples]),
            support=support,
            supporting=supporting[:, :-1],
            unknown=tuple(example.unknown for example in examples),
            words=tuple(example.words for example in examples),
            groups=self._groups(examples),
        )

    def _groups(self, examples: list[MemoryExample]) -> dict[str, tuple[str, ...]]:
        if not self.detailed:
            return {}
        return {
            "pattern": tuple(example.pattern for example in examples),
            "source": tuple(example.source for example in examples),
        }

    def describe(self, indices: Sequence[int]) -> str:
        return "questions at " + "; ".join(self.examples[index].place for index in indices)

    def fingerprint(self) -> str:
        """A checksum of all stories and questions."""
        parts = [(one.facts, one.question, one.answer, one.support) for one in self.examples]
        return digest(self.table.numpy(), repr(parts))
