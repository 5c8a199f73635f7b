"""Posteriors of pairs under a model that has been learnt."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from latentalign.wordalign.corpus import SentenceBatch, Sentences
from latentalign.wordalign.expectation import LoadedShard, Shard, chain_counts
from latentalign.wordalign.model import Model


@dataclass(frozen=True)
class Posteriors:
    """Of one pair: matrices [target units, source units], and the pair's score."""

    number: int  # which pair of the shard
    forward: np.ndarray
    backward: np.ndarray
    score: float


def posteriors(shard: Shard, model: Model) -> Iterator[Posteriors]:
    """Of every pair with words on both sides, batch by batch."""
    loaded = LoadedShard(shard, model)
    chance = _log_frequency(shard.source), _log_frequency(shard.target)
    for batch in shard.batches:
        forward, backward = (chain_counts(model, side)[0] for side in loaded.directions(batch))
        likelihood = forward.log_evidence.double() + backward.log_evidence.double()
        gain = likelihood - chance[0][batch.source].sum(1) - chance[1][batch.target].sum(1)
        score = gain / (batch.source_lengths + batch.target_lengths)
        yield from _rows(batch, forward.positions, backward.positions.transpose(1, 2), score)


def _rows(batch: SentenceBatch, forward: Tensor, backward: Tensor, score: Tensor) -> Iterator[Posteriors]:
    for row, number in enumerate(batch.numbers.tolist()):
        inside = (row, slice(int(batch.target_lengths[row])), slice(int(batch.source_lengths[row])))
        yield Posteriors(number, forward[inside].numpy(), backward[inside].numpy(), float(score[row]))


def _log_frequency(sentences: Sentences) -> Tensor:
    """log p(word) by frequency alone [n+1]; 0 for padding. A new word is as if seen half a time."""
    words = sentences.words
    counts = np.maximum(words.pick(words.vocabulary.counts), 0.5)
    total = max(1, words.vocabulary.counts.sum())
    return torch.from_numpy(np.append(np.log(counts / total), 0.0))
