"""Where a hypothesis of the search is in the source: the filter of a chain, carried from word to word.

Before a word is chosen a hypothesis has π(i) = p(z = i | words so far). The word's probability is Σ_i π(i) f_i(word).
Once it is chosen, p(z = i | words so far and this one) ∝ π(i) f_i(word).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from latentalign.alignment.likelihoods.softmax_head import SoftmaxHead


@dataclass(frozen=True)
class Filter:
    """What a step knew before its word was chosen; N rows, one for each hypothesis."""

    shares: Tensor  # [N,K] π at the positions that were summed over
    positions: Tensor  # [N,K]
    log_normalizers: Tensor  # [N,K] of f, +inf where it was not evaluated because it hardly mattered
    queries: Tensor  # [N,H]

    def select(self, index: Tensor) -> "Filter":
        """The rows at `index`, in that order."""
        fields = (self.shares, self.positions, self.log_normalizers, self.queries)
        return Filter(*(field.index_select(0, index) for field in fields))

    def after(self, words: Tensor, values: Tensor, head: SoftmaxHead) -> Tensor:
        """log p(z = i | words so far and these) for words [A,W], N = A·W, and values [A,S,H]: [A,W,S]."""
        sentences = torch.arange(len(words), device=words.device).repeat_interleave(words.shape[1])
        place = sentences[:, None] * values.shape[1] + self.positions  # [N,K]
        chosen = words.flatten()[:, None].expand_as(place)
        logits = head.logit_of(values.flatten(0, 1)[place], self.queries[:, None], chosen)
        log_joint = self.shares.log() + logits.to(self.shares.dtype) - self.log_normalizers  # [N,K]
        nowhere = log_joint.new_full((len(place), values.shape[1]), -torch.inf)
        return nowhere.scatter_(1, self.positions, log_joint.log_softmax(-1)).view(*words.shape, -1)


@dataclass(frozen=True)
class Unobserved:
    """p(z = i) of a hypothesis whose words say nothing about it: soft attention reads the mean of the prior."""

    shares: Tensor  # [N,S]

    def select(self, index: Tensor) -> "Unobserved":
        """The rows at `index`, in that order."""
        return Unobserved(self.shares.index_select(0, index))

    def after(self, words: Tensor, values: Tensor, head: SoftmaxHead) -> Tensor:
        """log p(z = i), whatever the words [A,W]: [A,W,S]."""
        return self.shares.log().view(*words.shape, -1)
