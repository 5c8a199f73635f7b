"""Posteriors of pairs under a model that has been learnt."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from latentalign.wordalign.estimation.expectation import LoadedShard, Shard, chain_counts
from latentalign.wordalign.estimation.model import Model
from latentalign.wordalign.text.corpus import SentenceBatch
from latentalign.wordalign.text.vocabulary import WordList


@dataclass(frozen=True)
class BatchPosteriors:
    """Of a batch of pairs: matrices [B, target units, source units], 0 beyond the ends of a pair."""

    batch: SentenceBatch
    forward: np.ndarray
    backward: np.ndarray
    scores: np.ndarray  # [B] how much better than chance the sides explain each other, per word
    unknown: np.ndarray  # [B] units that were never seen

    @property
    def inside(self) -> np.ndarray:
        """[B,T,S] bool: True for the units of a pair."""
        batch = self.batch
        return ((batch.target >= 0)[:, :, None] & (batch.source >= 0)[:, None]).numpy()

    def pairs(self) -> Iterator[tuple[int, tuple[int, slice, slice]]]:
        """The number of every pair, and where it lies in the matrices."""
        lengths = zip(self.batch.target_lengths.tolist(), self.batch.source_lengths.tolist(), strict=True)
        for row, (number, (steps, positions)) in enumerate(
            zip(self.batch.numbers.tolist(), lengths, strict=True)
        ):
            yield number, (row, slice(steps), slice(positions))


def posteriors(shard: Shard, model: Model) -> Iterator[BatchPosteriors]:
    """Of every pair with words on both sides, batch by batch."""
    loaded = LoadedShard(shard, model)
    source, target = shard.source.words, shard.target.words
    chance = _log_frequency(source), _log_frequency(target)
    for batch in shard.batches:
        forward, backward = (chain_counts(model, side)[0] for side in loaded.directions(batch))
        likelihood = forward.log_evidence.double() + backward.log_evidence.double()
        gain = likelihood - chance[0][batch.source].sum(1) - chance[1][batch.target].sum(1)
        yield BatchPosteriors(
            batch,
            forward.positions.numpy(),
            backward.positions.transpose(1, 2).numpy(),
            (gain / (batch.source_lengths + batch.target_lengths)).numpy(),
            ((batch.source >= len(source.known)).sum(1) + (batch.target >= len(target.known)).sum(1)).numpy(),
        )


def _log_frequency(words: WordList) -> Tensor:
    """log p(word) by frequency alone [n+1]; 0 for padding. A new word is as if seen half a time."""
    counts = np.maximum(words.pick(words.vocabulary.counts), 0.5)
    total = max(1, words.vocabulary.counts.sum())
    return torch.from_numpy(np.append(np.log(counts / total), 0.0))
