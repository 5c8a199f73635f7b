"""a(x, x̃): scores of every memory position for every query. Memory is projected once, into keys."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from latentalign.alignment.checks import check_shapes
from latentalign.alignment.errors import ConfigError

BLOCK_ELEMENTS = 2**20  # of tanh(q + k) that exist at a time beyond `max_elements`


class Score(nn.Module, ABC):
    """scores = score(queries [B,T,Dq], memory [B,S,Dm]): [B,T,S]."""

    def forward(self, queries: Tensor, memory: Tensor) -> Tensor:
        check_shapes(queries=(queries, "B T Q"), memory=(memory, "B S M"))
        return self.from_keys(queries, self.project_memory(memory))

    @abstractmethod
    def project_memory(self, memory: Tensor) -> Tensor:
        """Keys of a memory [B,S,Dm], to be kept while the memory stays the same."""

    @abstractmethod
    def from_keys(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Scores [B,T,S] of queries [B,T,Dq] against keys."""


class Additive(Score):
    """vᵀ tanh(W x̃ + U x_i) (Bahdanau et al. 2015).

    The [B,T,S,H] intermediate is kept for the backward pass while it has at most `max_elements` numbers;
    beyond that steps run in blocks that are computed again.
    """

    def __init__(
        self, query_dim: int, memory_dim: int, hidden_dim: int, *, max_elements: int = 2**22
    ) -> None:
        super().__init__()
        self.query = nn.Linear(query_dim, hidden_dim)
        self.memory = nn.Linear(memory_dim, hidden_dim, bias=False)
        self.energy = nn.Linear(hidden_dim, 1, bias=False)
        self.max_elements = max_elements

    def project_memory(self, memory: Tensor) -> Tensor:
        return self.memory(memory)

    def from_keys(self, queries: Tensor, keys: Tensor) -> Tensor:
        queries = self.query(queries)  # [B,T,H]
        if queries.shape[1] * keys.numel() <= self.max_elements:
            return self._energies(queries, keys)
        inputs = (queries, keys, self.energy.weight)
        scores: Tensor = _BlockwiseEnergies.apply(*inputs)  # type: ignore[no-untyped-call]
        return scores

    def _energies(self, queries: Tensor, keys: Tensor) -> Tensor:
        # tanh(x) = 2 σ(2x) − 1: on a CPU σ takes a third of the time of tanh, and the rest goes into v
        gate = torch.sigmoid(2 * queries[:, :, None] + 2 * keys[:, None])
        return 2 * self.energy(gate).squeeze(-1) - self.energy.weight.sum()


class _BlockwiseEnergies(torch.autograd.Function):
    """vᵀ tanh(q + k) a few steps at a time; the backward pass computes each block again and keeps none.

    By tanh(x) = 2 σ(2x) − 1, as where all fits.
    """

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(queries, keys, weight)
        scores = queries.new_empty(queries.shape[0], queries.shape[1], keys.shape[1])
        for block, gate in _gates(queries, keys):
            scores[:, block] = gate @ weight[0]
        return scores.mul_(2).sub_(weight.sum())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        queries, keys, weight = ctx.saved_tensors
        for_queries, for_keys, for_weight = (torch.zeros_like(tensor) for tensor in (queries, keys, weight))
        for block, gate in _gates(queries, keys):
            above = upstream[:, block].flatten()  # [B·t·S]
            for_weight += above @ gate.flatten(0, 2)
            slope = gate.sub_(gate.square())  # tanh' = 4 σ (1 − σ)
            slope.flatten(0, 2).mul_(4 * above[:, None])
            for_queries[:, block] = slope.sum(dim=2)
            for_keys += slope.sum(dim=1)
        return for_queries * weight[0], for_keys * weight[0], 2 * for_weight - upstream.sum()


def _gates(queries: Tensor, keys: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """σ(2 (q + k)) of a few steps at a time, [B,t,S,H]."""
    queries, keys = 2 * queries, 2 * keys
    for block in _steps(queries, keys):
        yield block, (queries[:, block, None] + keys[:, None]).sigmoid_()


def _steps(queries: Tensor, keys: Tensor) -> Iterator[slice]:
    size = max(1, BLOCK_ELEMENTS // keys.numel())
    for start in range(0, queries.shape[1], size):
        yield slice(start, start + size)


class Dot(Score):
    """x̃ᵀ x_i, for queries and memory of one size."""

    def __init__(self, query_dim: int, memory_dim: int) -> None:
        super().__init__()
        if query_dim != memory_dim:
            raise ConfigError(
                f"score: dot expected queries and memory of one size, received {query_dim} and {memory_dim}; "
                "use general or additive"
            )

    def project_memory(self, memory: Tensor) -> Tensor:
        return memory

    def from_keys(self, queries: Tensor, keys: Tensor) -> Tensor:
        return queries @ keys.transpose(1, 2)


class General(Score):
    """x̃ᵀ W x_i (Luong et al. 2015)."""

    def __init__(self, query_dim: int, memory_dim: int) -> None:
        super().__init__()
        self.memory = nn.Linear(memory_dim, query_dim, bias=False)

    def project_memory(self, memory: Tensor) -> Tensor:
        return self.memory(memory)

    def from_keys(self, queries: Tensor, keys: Tensor) -> Tensor:
        return queries @ keys.transpose(1, 2)


def from_prior(prior_scores: Tensor, scores: Tensor) -> Tensor:
    """Scores of q ∝ p · exp(score): what an inference network adds to the prior.

    The exact posterior is p · f, so the network only has to learn what the output says about a position, log f, and
    not the prior besides. Nothing is learnt through the prior's scores.
    """
    return prior_scores.detach() + scores
