"""Sentence pairs as numbers: flat arrays of words, and batches of pairs of similar lengths."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from latentalign.wordalign.text.vocabulary import Units, WordList, WordVocabulary

_FINE, _COARSE = 4, 8  # lengths are padded to multiples of these
_SHORT = 16  # up to here to those of the first: coarser steps make larger batches, and longer rows lose less by them


@dataclass(frozen=True)
class Sentences:
    """Many sentences in one flat array of word numbers."""

    tokens: np.ndarray  # [sum of lengths] int64: places in `words`
    offsets: np.ndarray  # [N+1] int64
    words: WordList  # the distinct words of these sentences

    @classmethod
    def of(cls, sentences: Iterable[Units], vocabulary: WordVocabulary) -> "Sentences":
        """Words that the vocabulary does not know get numbers beyond it."""
        known, new = vocabulary.index, dict[str, int]()
        beyond = len(vocabulary)
        lengths, found = [0], list[int]()
        for words in sentences:
            lengths.append(len(words))
            for word in words:
                number = known.get(word)
                found.append(beyond + new.setdefault(word, len(new)) if number is None else number)
        numbers, tokens = np.unique(np.array(found, dtype=np.int64), return_inverse=True)
        return cls(tokens, np.cumsum(lengths), WordList(vocabulary, numbers, list(new)))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def padded(self, numbers: np.ndarray, width: int) -> Tensor:
        """The sentences of these numbers [B,width]; −1 beyond their ends."""
        inside = np.arange(width) < self.lengths[numbers][:, None]
        rows = np.full(inside.shape, -1, dtype=np.int64)
        rows[inside] = self.tokens[(self.offsets[numbers][:, None] + np.arange(width))[inside]]
        return torch.from_numpy(rows)


@dataclass(frozen=True)
class SentenceBatch:
    """Pairs of similar lengths; words beyond the end of a sentence are −1."""

    numbers: np.ndarray  # [B] which pairs
    source: Tensor  # [B,S]
    target: Tensor  # [B,T]
    source_lengths: Tensor  # [B]
    target_lengths: Tensor  # [B]
    first_cell: int  # where the cells of this batch begin among those of all batches

    @property
    def shape(self) -> tuple[int, int, int]:
        """(B, T, S), the layout of the cells."""
        return (*self.target.shape, self.source.shape[1])

    @property
    def cells(self) -> slice:
        pairs, steps, positions = self.shape
        return slice(self.first_cell, self.first_cell + pairs * steps * positions)


def make_batches(source: Sentences, target: Sentences, *, cells: int = 100_000) -> list[SentenceBatch]:
    """Pairs of the same padded lengths together; about `cells` cells a batch (a longer pair is alone).

    How far a pair is padded depends on the pair alone, so that it is aligned the same way whatever the others are.
    A pair with an empty side is in no batch.
    """
    lengths = np.stack([source.lengths, target.lengths])
    grain = np.where(lengths <= _SHORT, _FINE, _COARSE)
    padded = -(-lengths // grain) * grain
    real = np.flatnonzero(lengths.min(axis=0) > 0)
    order = real[np.lexsort((padded[1, real], padded[0, real]))]
    batches: list[SentenceBatch] = []
    first_cell = 0
    changes = np.flatnonzero(np.diff(padded[:, order]).any(axis=0)) + 1
    for group in np.split(order, changes):
        if not len(group):
            continue
        positions, steps = (int(n) for n in padded[:, group[0]])
        most = max(1, cells // (positions * steps))
        for begin in range(0, len(group), most):
            numbers = group[begin : begin + most]
            batch = SentenceBatch(
                numbers,
                source.padded(numbers, positions),
                target.padded(numbers, steps),
                torch.from_numpy(lengths[0, numbers]),
                torch.from_numpy(lengths[1, numbers]),
                first_cell,
            )
            batches.append(batch)
            first_cell = batch.cells.stop
    return batches
