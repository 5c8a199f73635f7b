"""Sentences as vectors: position encoding of words, temporal encoding of facts, random noise."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from latentalign.memory.config import MemoryModelConfig
from latentalign.memory.dataset import MemoryBatch
from latentalign.memory.vocabulary import PAD, UNKNOWN, Vocabulary


def position_weights(sentences: Tensor) -> Tensor:
    """The two weights of every word from which position encoding is made: [N,J] words -> [N,2,J].

    Position encoding weights feature k (of D) of word j (of n) by (1 − j/n) − (k/D)(1 − 2j/n). It is linear
    in k/D, so a sentence is `first + (k/D)·second` with two weighted sums of its words: no [N,J,D] weights.
    """
    real = sentences != PAD  # [N,J]
    length = real.sum(dim=1, keepdim=True).clamp_min(1)
    share = torch.arange(1, sentences.shape[1] + 1, device=sentences.device) / length  # j/n
    return torch.stack([1 - share, 2 * share - 1], dim=1) * real[:, None]


class SentenceEncoder(nn.Module):
    """Sums of word vectors under several embedding tables at once (a memory network has one a hop)."""

    ramp: Tensor

    def __init__(
        self,
        words: int,
        size: int,
        *,
        tables: int = 1,
        position_encoding: bool = True,
        init_scale: float = 0.1,
    ) -> None:
        super().__init__()
        self.tables, self.size, self.position_encoding = tables, size, position_encoding
        table = torch.randn(words, tables * size) * init_scale
        table[[PAD, UNKNOWN]] = 0.0
        self.table = nn.Parameter(table)
        ramp = torch.arange(1, size + 1) / size  # k/D
        self.register_buffer("ramp", ramp.repeat(tables), persistent=False)

    def forward(self, sentences: Tensor, table: Tensor | None = None) -> Tensor:
        """[N,J] words -> [N,tables,D]; with a given table (the same words) instead of the encoder's own."""
        embedded = functional.embedding(sentences, self.table if table is None else table)  # [N,J,tables·D]
        if self.position_encoding:
            sums = position_weights(sentences).to(embedded.dtype) @ embedded  # [N,2,tables·D]
            encoded = sums[:, 0] + self.ramp * sums[:, 1]
        else:
            encoded = (embedded * (sentences != PAD)[..., None]).sum(dim=1)
        return encoded.view(-1, self.tables, self.size)


def split_batch(encoded: Tensor, batch: MemoryBatch) -> tuple[Tensor, Tensor]:
    """Encoded sentences [N+B,…] of a batch as facts [B,S,…] (zero where there is none), questions [B,…]."""
    facts, questions = encoded[: -len(batch)], encoded[-len(batch) :]
    row = batch.mask.flatten().cumsum(0).view_as(batch.mask) - 1
    mask = batch.mask.view(*batch.mask.shape, *[1] * (encoded.dim() - 1))
    return facts[row.clamp_min(0)].masked_fill(~mask, 0.0), questions


class TemporalEncoding(nn.Module):
    """A learnt vector for the age of a fact; while training, random noise makes some facts look older."""

    def __init__(
        self, memory: int, size: int, *, tables: int = 1, random_noise: float = 0.0, init_scale: float = 0.1
    ) -> None:
        super().__init__()
        self.random_noise = random_noise
        self.vectors = nn.Parameter(torch.randn(memory, tables, size) * init_scale)

    def ages(self, age: Tensor) -> Tensor:
        """Ages [B,S] after empty slots have been put between facts at the rate of the noise."""
        if self.training and self.random_noise > 0:
            empty = (torch.rand(age.shape, device=age.device) < self.random_noise).long()
            # every empty slot makes the facts before it one older: facts go from the oldest to the newest
            age = age + empty.flip(1).cumsum(1).flip(1)
        return age.clamp_max(self.vectors.shape[0] - 1)

    def forward(self, age: Tensor) -> Tensor:
        """[B,S] -> [B,S,tables,D]."""
        found = functional.embedding(self.ages(age), self.vectors.flatten(1))
        return found.view(*age.shape, *self.vectors.shape[1:])


def build_encoders(
    config: MemoryModelConfig, vocabulary: Vocabulary, *, memory: int, tables: int = 1
) -> tuple[SentenceEncoder, TemporalEncoding | None]:
    """How a model reads sentences, and the age of `memory` facts if it does."""
    words = SentenceEncoder(
        len(vocabulary.words),
        config.size,
        tables=tables,
        position_encoding=config.position_encoding,
        init_scale=config.init_scale,
    )
    if not config.temporal_encoding:
        return words, None
    noise, scale = config.random_noise, config.init_scale
    return words, TemporalEncoding(memory, config.size, tables=tables, random_noise=noise, init_scale=scale)
