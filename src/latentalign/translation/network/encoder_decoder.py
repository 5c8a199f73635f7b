"""What the translator needs of its two networks, whatever they are made of.

An encoder turns words into a memory. A decoder turns target words into queries: all of them at once in training, or
one after another with a state whose rows a search can choose from.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

from torch import Tensor, nn


class SequenceEncoder(nn.Module, ABC):
    """Words to states, every one with the whole sentence at hand."""

    size: int  # of a state

    @abstractmethod
    def forward(self, inputs: Tensor, mask: Tensor, *, padded: bool = True) -> Tensor:
        """States [B,S,size] of word vectors [B,S,E]; `padded=False` promises that the mask [B,S] is all True."""

    @abstractmethod
    def summary(self, states: Tensor, mask: Tensor) -> Tensor:
        """One vector for each sentence, where a decoder may start: [B,S,size] -> [B,size]."""


class DecoderState(ABC):
    """What a decoder has read so far; N rows, one for each hypothesis."""

    @abstractmethod
    def select(self, index: Tensor) -> Self:
        """The rows at `index`, in that order."""


@dataclass(frozen=True)
class Memory:
    """A source as the decoder sees it: everything that is computed once a sentence."""

    states: Tensor  # [B,S,M]
    keys: Tensor  # [B,S,·] for the scores
    values: Tensor  # [B,S,H] A x, for the likelihood
    mask: Tensor  # [B,S]
    start: DecoderState  # before the first word, B rows
    projected: Tensor | None = None  # [B,…] what the decoder itself attends to, where it does

    def select(self, index: Tensor) -> "Memory":
        """The sentences at `index`, in that order."""
        return Memory(
            self.states.index_select(0, index),
            self.keys.index_select(0, index),
            self.values.index_select(0, index),
            self.mask.index_select(0, index),
            self.start.select(index),
            None if self.projected is None else self.projected.index_select(0, index),
        )


class Decoder(nn.Module, ABC):
    """Target words to queries, none of which has seen a later word."""

    size: int  # of a query
    feeds = False  # whether a step takes the context of the step before

    @abstractmethod
    def start(self, states: Tensor, bridged: Tensor | None) -> DecoderState:
        """Before the first word, for memory states [B,S,M] and what the bridge made of them."""

    def project_source(self, states: Tensor) -> Tensor | None:
        """Keys and values of its own for memory states [B,S,M]; None if it reaches the source through z alone."""
        return None

    @abstractmethod
    def all_steps(self, inputs: Tensor, memory: Memory) -> Tensor:
        """Queries [B,T,size] for word vectors [B,T,E]."""

    @abstractmethod
    def one_step(self, inputs: Tensor, memory: Memory, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Queries [B,W,size] for the next word vectors [B,W,E] of W hypotheses a sentence; state rows are B·W."""

    def feed(self, state: DecoderState, context: Tensor) -> DecoderState:
        """The state with the context [N,M] that the next step takes."""
        raise NotImplementedError(type(self).__name__)
