"""a(x, x̃): scores of every memory position for every query. Memory is projected once, into keys."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from latentalign.alignment.checks import check_shapes
from latentalign.alignment.errors import ConfigError


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
    beyond that steps run in chunks that are computed again.
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
        size = max(1, self.max_elements // max(1, keys.numel()))
        if queries.shape[1] <= size:
            return self._energies(queries, keys)
        pieces = []
        for chunk in torch.split(queries, size, dim=1):
            if torch.is_grad_enabled():
                pieces.append(checkpoint(self._energies, chunk, keys, use_reentrant=False))
            else:
                pieces.append(self._energies(chunk, keys))
        return torch.cat(pieces, dim=1)

    def _energies(self, queries: Tensor, keys: Tensor) -> Tensor:
        return self.energy(torch.tanh(queries[:, :, None] + keys[:, None])).squeeze(-1)


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
