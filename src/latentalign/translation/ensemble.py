"""Several translation models searched together: the mean of their predictive distributions at every step.

Every member reads the source and the words so far by itself: a chain carries its own filter, and each predicts as it
was trained to, or all by the same `inference`.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from latentalign.translation.beam.decoding import PredictiveDecoder
from latentalign.translation.beam.search import BeamStatus, Scores, Selectable
from latentalign.translation.data.tokenizer import END, START


@dataclass(frozen=True)
class MemberParts:
    """Memories or states, one for each member; rows are selected in all of them alike."""

    parts: tuple[Any, ...]

    def select(self, index: Tensor) -> "MemberParts":
        """The rows at `index`, in that order."""
        return MemberParts(tuple(part.select(index) for part in self.parts))


@dataclass(frozen=True)
class EnsembleDecoder:
    """A `SearchModel` of several. Its members must evaluate every position (tolerance 0).

    What a single model may leave out cannot enter its own beam, but could enter that of the others.
    """

    members: tuple[PredictiveDecoder, ...]
    start_token: int = START
    end_token: int = END

    def encode(self, source: Tensor, source_mask: Tensor) -> MemberParts:
        """The source as every member remembers it."""
        return MemberParts(tuple(member.encode(source, source_mask) for member in self.members))

    def start(self, memory: MemberParts) -> MemberParts:
        """Before the first word."""
        pairs = zip(self.members, memory.parts, strict=True)
        return MemberParts(tuple(member.start(part) for member, part in pairs))

    def step(
        self, memory: MemberParts, state: MemberParts, tokens: Tensor, beam: BeamStatus
    ) -> tuple[Scores, MemberParts]:
        """The mean probability of every token that may follow `tokens` [A,W]."""
        total: Tensor | None = None
        states: list[Selectable] = []
        for member, own, before in zip(self.members, memory.parts, state.parts, strict=True):
            scores, after = member.step(own, before, tokens, beam)
            states.append(after)
            probs = probabilities(scores)
            total = probs if total is None else total + probs
        assert total is not None
        mean = total / len(self.members)
        return Scores(mean, mean.new_zeros(mean.shape[:2]), probabilities=True), MemberParts(tuple(states))


def probabilities(scores: Scores) -> Tensor:
    """The scores of all tokens as probabilities [A,W,V]."""
    normalizer = scores.log_normalizer[..., None]
    if scores.probabilities:
        return scores.values * (-normalizer).exp()
    return (scores.values - normalizer).exp()


def log_mean(log_probs: list[Tensor]) -> Tensor:
    """log of the mean of probabilities, given the logarithms of each member's."""
    stacked = torch.stack(log_probs).double()
    return stacked.logsumexp(0) - torch.tensor(float(len(log_probs)), dtype=torch.float64).log()
