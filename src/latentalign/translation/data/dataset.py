"""Batches of sentence pairs: planned by length, the same for the same seed and epoch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from latentalign.batching import cut
from latentalign.files import digest
from latentalign.translation.data.corpus import Corpus
from latentalign.translation.data.tokenizer import PAD, START


@dataclass(frozen=True)
class PairBatch:
    """Padded sentence pairs."""

    source: Tensor  # [B,S] long
    source_mask: Tensor  # [B,S] bool
    target: Tensor  # [B,T] long: what is predicted, end mark included
    target_mask: Tensor  # [B,T] bool
    links: Tensor | None = None  # [B,T,S] probabilities of an external posterior

    @property
    def target_input(self) -> Tensor:
        """What the decoder reads: the start mark, then the targets one step late. [B,T]"""
        start = torch.full_like(self.target[:, :1], START)
        return torch.cat([start, self.target[:, :-1]], dim=1)

    def to(self, device: torch.device | str) -> "PairBatch":
        """The same batch on another device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> "PairBatch":
        """The same batch in memory from which a GPU can copy while it computes."""
        return self._each(Tensor.pin_memory)

    def _each(self, move: Callable[[Tensor], Tensor]) -> "PairBatch":
        fields = (self.source, self.source_mask, self.target, self.target_mask)
        return replace(PairBatch(*map(move, fields)), links=None if self.links is None else move(self.links))

    def __len__(self) -> int:
        return self.source.shape[0]


def pad(sequences: Sequence[Sequence[int] | np.ndarray]) -> tuple[Tensor, Tensor]:
    """Sequences of pieces as one padded tensor [B,L] and its mask."""
    lengths = np.fromiter((len(sequence) for sequence in sequences), dtype=np.int64, count=len(sequences))
    mask = np.arange(lengths.max(initial=0)) < lengths[:, None]
    tokens = np.full(mask.shape, PAD, dtype=np.int64)
    tokens[mask] = np.concatenate([np.asarray(sequence, dtype=np.int64) for sequence in sequences])
    return torch.from_numpy(tokens), torch.from_numpy(mask)


def make_batch(
    sources: Sequence[Sequence[int] | np.ndarray], targets: Sequence[Sequence[int] | np.ndarray]
) -> PairBatch:
    """A batch of sequences as `TranslationAssets.encode_source` and `encode_target` give them."""
    return PairBatch(*pad(sources), *pad(targets))


class TranslationDataset:
    """Sentence pairs that can be planned into batches and collated."""

    def __init__(self, corpus: Corpus, *, batch_by: str = "sentences", batch_size: int = 64) -> None:
        self.corpus = corpus
        self.batch_by = batch_by
        self.batch_size = batch_size
        self._lengths = (corpus.source.lengths, corpus.target.lengths)

    def __len__(self) -> int:
        return len(self.corpus)

    def plan(self, epoch: int, seed: int) -> list[list[int]]:
        """Batches of pairs of similar lengths. Every pair is in exactly one; epoch < 0 is a fixed order."""
        source, target = self._lengths
        if epoch < 0:
            order = np.lexsort((source, target))
            return self._cut(order)
        random = np.random.default_rng([seed, epoch])
        shuffled = random.permutation(len(self))
        # nearly equal lengths are mixed anew in every epoch: the noise is below what padding would notice
        noisy_source = source[shuffled] + random.uniform(0.0, 2.0, len(self))
        order = shuffled[np.lexsort((noisy_source, target[shuffled]))]
        batches = self._cut(order)
        return [batches[index] for index in random.permutation(len(batches))]

    def _cut(self, order: np.ndarray) -> list[list[int]]:
        if self.batch_by == "sentences":
            return cut(order.tolist(), examples=self.batch_size)
        return cut(order.tolist(), lengths=self._lengths[1].tolist(), padded=self.batch_size)

    def collate(self, indices: list[int]) -> PairBatch:
        """The chosen pairs as one batch."""
        corpus = self.corpus
        batch = make_batch([corpus.source[i] for i in indices], [corpus.target[i] for i in indices])
        if corpus.links is None:
            return batch
        return replace(batch, links=corpus.links.table(indices, batch.target.shape[1], batch.source.shape[1]))

    def describe(self, indices: list[int]) -> str:
        """The lines of the chosen pairs, for an error message."""
        lines = ", ".join(str(line) for line in sorted(self.corpus.lines[indices].tolist()))
        return f"lines {lines} of {self.corpus.report.name}"

    def fingerprint(self) -> str:
        """A checksum of all pieces of all pairs, and of their links where there are some."""
        sides, links = (self.corpus.source, self.corpus.target), self.corpus.links
        parts = [part for side in sides for part in (side.tokens, side.offsets)]
        if links is not None:
            parts += [links.targets, links.sources, links.probs, links.offsets]
        return digest(*map(np.ascontiguousarray, parts))
