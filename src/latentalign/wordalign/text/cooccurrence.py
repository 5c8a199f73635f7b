"""Which words occur together: a sparse table of pairs of words, and the pair of every cell of every batch."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from latentalign.wordalign.estimation.counts import pair_keys
from latentalign.wordalign.text.corpus import SentenceBatch, Sentences
from latentalign.wordalign.text.vocabulary import WordList

_CHUNK = 1 << 20  # cells sorted at a time


@dataclass(frozen=True)
class PairTable:
    """The pairs of a source and a target word that share a sentence pair, by source, then by target word."""

    words: tuple[WordList, WordList]  # the distinct words of either side
    source: np.ndarray  # [N] int32: places in words[0]
    target: np.ndarray  # [N] int32: places in words[1]

    def __len__(self) -> int:
        return len(self.source)

    @property
    def keys(self) -> np.ndarray:
        """The keys of the pairs, ascending [N]."""
        return pair_keys(self.words[0].numbers[self.source], self.words[1].numbers[self.target])


def index_cells(
    batches: list[SentenceBatch], source: Sentences, target: Sentences
) -> tuple[PairTable, Tensor]:
    """The table of pairs, and the number of its pair for every cell [B,T,S] of every batch, in one array.

    A cell of padding has the number N, one past the last pair.
    """
    cells = np.full(batches[-1].cells.stop if batches else 0, -1, dtype=np.int32)
    width = max(1, len(target.words))
    pairs: list[np.ndarray] = []
    found = 0
    for words, targets, places in _by_source_word(batches, source, target):
        key = words * width + targets
        # the key and its place in one number: sorting numbers is several times faster than sorting places
        bits = len(key).bit_length()
        packed = np.sort(((key - key.min()) << bits) | np.arange(len(key)))
        ordered = packed >> bits
        first = np.flatnonzero(np.diff(ordered, prepend=-1))
        numbers = np.repeat(np.arange(found, found + len(first)), np.diff(first, append=len(ordered)))
        cells[places[packed & ((1 << bits) - 1)]] = numbers
        pairs.append(ordered[first] + key.min())
        found += len(first)
    cells[cells < 0] = found
    keys = np.concatenate([np.empty(0, np.int64), *pairs])
    rows, columns = (part.astype(np.int32) for part in (keys // width, keys % width))
    return PairTable((source.words, target.words), rows, columns), torch.from_numpy(cells)


def _by_source_word(
    batches: list[SentenceBatch], source: Sentences, target: Sentences
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Cells in chunks, as (source word, target word, place); all cells of a pair of words are in one chunk."""
    first, step = np.zeros(len(source), dtype=np.int64), np.zeros(len(source), dtype=np.int64)
    for batch in batches:  # cell (t, s) of a pair is at first + t · step + s
        pairs, steps, positions = batch.shape
        first[batch.numbers] = batch.first_cell + np.arange(pairs) * steps * positions
        step[batch.numbers] = positions
    pair_of = np.repeat(np.arange(len(source)), source.lengths)
    position = np.arange(len(source.tokens)) - source.offsets[pair_of]
    order = np.argsort(source.tokens, kind="stable")
    order = order[step[pair_of[order]] > 0]
    widths = target.lengths[pair_of[order]]
    for begin, end in _runs(source.tokens[order], widths):
        width = widths[begin:end]
        owner = np.repeat(order[begin:end], width)
        time = np.arange(len(owner)) - np.repeat(np.cumsum(width) - width, width)
        pair = pair_of[owner]
        words = source.tokens[owner]
        targets = target.tokens[target.offsets[pair] + time]
        places = first[pair] + time * step[pair] + position[owner]
        if len(words) <= _CHUNK:
            yield words, targets, places
            continue
        # one very frequent word: by its target words
        sorted_targets = np.argsort(targets, kind="stable")
        for low, high in _runs(targets[sorted_targets], np.ones(len(targets), dtype=np.int64)):
            part = sorted_targets[low:high]
            yield words[part], targets[part], places[part]


def _runs(sorted_words: np.ndarray, widths: np.ndarray) -> Iterator[tuple[int, int]]:
    """Ranges of whole words with at most a chunk of cells each; a word with more has a range of its own."""
    ends = np.append(np.flatnonzero(np.diff(sorted_words)) + 1, len(sorted_words))
    total = np.concatenate([[0], np.cumsum(widths)])
    begin = 0
    while begin < len(sorted_words):
        last = np.searchsorted(total[ends], total[begin] + _CHUNK, side="right") - 1
        end = int(ends[max(last, np.searchsorted(ends, begin, side="right"))])
        yield begin, end
        begin = end
