"""The end-to-end memory network: soft hops before a latent one, or a latent path over all hops."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from latentalign.alignment.likelihoods.likelihood import ContextLikelihood
from latentalign.errors import UserError
from latentalign.memory.config import MemoryModelConfig
from latentalign.memory.dataset import MemoryBatch
from latentalign.memory.encoding import build_encoders, split_batch
from latentalign.memory.reading import Reading, masked_softmax, walk_paths
from latentalign.memory.vocabulary import Vocabulary


class AnswerTable(nn.Module):
    """One vector an answer; an answer that is a word of the vocabulary takes it from the last table."""

    rows: Tensor

    def __init__(self, vocabulary: Vocabulary, size: int, *, init_scale: float) -> None:
        super().__init__()
        words = [numbers[0] if len(numbers) == 1 else -1 for numbers in vocabulary.answer_words]
        own = [number for number, word in enumerate(words) if word < 0]
        self.own = nn.Parameter(torch.randn(len(own), size) * init_scale)
        total = len(vocabulary.words)
        numbers = [word if word >= 0 else total + own.index(number) for number, word in enumerate(words)]
        self.register_buffer("rows", torch.tensor(numbers), persistent=False)

    def forward(self, words: Tensor) -> Tensor:
        """Word vectors [V,D] -> answer vectors [A,D]."""
        return torch.cat([words, self.own]).index_select(0, self.rows)


class EndToEnd(nn.Module):
    """u ← u + Σ p_i c_i, hop by hop; the answer is softmax(W u).

    Adjacent tying: hop h reads with table h and adds with table h+1, the question is read with table 1 and
    answers are rows of the last table. Layer-wise tying: one pair of tables for all hops, and
    u ← H u + Σ p_i c_i.
    """

    seen: Tensor

    def __init__(
        self, config: MemoryModelConfig, vocabulary: Vocabulary, *, memory: int, batches: int = 1
    ) -> None:
        super().__init__()
        self.config = config
        self.adjacent = config.tying == "adjacent"
        tables = config.hops + 1 if self.adjacent else 3  # layer-wise: A, C and the question's B
        self.encoder, self.temporal = build_encoders(config, vocabulary, memory=memory, tables=tables)
        self.carry = None if self.adjacent else nn.Linear(config.size, config.size, bias=False)
        self.answers = AnswerTable(vocabulary, config.size, init_scale=config.init_scale)
        self.dropout = nn.Dropout(config.dropout)
        # batches seen in training: linear start ends after some of them, also in a resumed or loaded model
        self.linear_batches = round(config.linear_start * batches)
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    @property
    def is_linear(self) -> bool:
        return int(self.seen) <= self.linear_batches and self.linear_batches > 0

    def count(self) -> None:
        """A training batch is about to be read."""
        if self.linear_batches:
            self.seen += 1

    def _tables(self, hop: int) -> tuple[int, int]:
        return (hop, hop + 1) if self.adjacent else (0, 1)

    def _keep(self, state: Tensor) -> Tensor:
        return state if self.carry is None else self.carry(state)

    def forward(self, batch: MemoryBatch, targets: Tensor | None) -> Reading:
        """Read the facts; `targets` [B,1] are the observed answers."""
        facts, questions = split_batch(self.encoder(batch.sentences), batch)  # [B,S,tables,D], [B,tables,D]
        if self.temporal is not None:
            facts = facts + self.temporal(batch.age)
        facts = self.dropout(facts)
        tables = [self._tables(hop) for hop in range(self.config.hops)]
        keys = [facts[:, :, key] for key, _ in tables]  # [B,S,D] a hop
        values = [facts[:, :, value] for _, value in tables]
        state = self.dropout(questions[:, 0 if self.adjacent else 2])  # [B,D]
        last = tables[-1][1]
        size = self.config.size
        answers: Tensor = self.answers(self.encoder.table[:, last * size : (last + 1) * size])  # [A,D]

        def head(context: Tensor, query: Tensor) -> Tensor:
            return (context + query) @ answers.t()

        if self.is_linear:
            reading = self._read_linearly(state, keys, values, batch.mask)
        elif self.config.latent == "path":
            reading = self._read_paths(state, keys, values, batch.mask)
        else:
            reading = self._read(state, keys, values, batch.mask)
        likelihood = ContextLikelihood(
            head, reading.values, reading.query[:, None], targets, width=len(answers)
        )
        return Reading(reading.scores, reading.mask, likelihood, reading.earlier, reading.hops_in_latent)

    def _read(self, state: Tensor, keys: list[Tensor], values: list[Tensor], mask: Tensor) -> "_Read":
        """Soft hops, then the scores of the last one."""
        earlier = []
        for key, value in zip(keys[:-1], values[:-1], strict=True):
            earlier.append(_match(key, state))
            state = self._keep(state) + _mix(masked_softmax(earlier[-1], mask), value)
        return _Read(_match(keys[-1], state), mask, values[-1], self._keep(state), tuple(earlier))

    def _read_linearly(
        self, state: Tensor, keys: list[Tensor], values: list[Tensor], mask: Tensor
    ) -> "_Read":
        """Every hop without its softmax. What is read does not depend on z: all slots get the same value."""
        earlier = []
        for key, value in zip(keys, values, strict=True):
            earlier.append(_match(key, state))
            read = _mix(earlier[-1].masked_fill(~mask, 0.0), value)
            last, state = self._keep(state), self._keep(state) + read
        same = read[:, None].expand(-1, mask.shape[1], -1)
        return _Read(earlier[-1], mask, same, last, tuple(earlier[:-1]))

    def _read_paths(self, state: Tensor, keys: list[Tensor], values: list[Tensor], mask: Tensor) -> "_Read":
        """Every hop latent: the sum over all paths through the slots, exact."""
        paths = mask.shape[1] ** len(keys)
        if paths > self.config.most_paths:
            raise UserError(
                f"model.latent: path over {len(keys)} hops and {mask.shape[1]} slots makes {paths} paths, "
                f"more than most_paths = {self.config.most_paths}; use fewer hops or a smaller data.memory"
            )
        log_path, path_mask, states = walk_paths(state, keys, values, mask, keep=self._keep)
        return _Read(log_path, path_mask, states, torch.zeros_like(state), (), len(keys))


@dataclass(frozen=True)
class _Read:
    """A reading before the answer: the latent's scores, and what its values add to the query."""

    scores: Tensor  # [B,Z]
    mask: Tensor  # [B,Z]
    values: Tensor  # [B,Z,D]
    query: Tensor  # [B,D]
    earlier: tuple[Tensor, ...]
    hops_in_latent: int = 1


def _match(key: Tensor, state: Tensor) -> Tensor:
    return (key @ state[..., None])[..., 0]  # [B,S]


def _mix(weights: Tensor, value: Tensor) -> Tensor:
    return (weights[:, None] @ value)[:, 0]  # [B,D]
