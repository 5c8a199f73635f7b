"""Jumps of a chain: c_k(d), a weight for each distance d and class k of the word that is left, and its M-step.

p(i | i') = c_k(i − i') / Z(i'), with Z the sum over the positions of the sentence: a choice among the distances that
stay inside. The start of a sentence is a class of its own, which jumps from position 0. At the end of a sentence of I
words there is one more choice, between the end (distance I − i) and the positions: alignments that end at the end are
preferred.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from latentalign.alignment.chains.hidden_markov import ExpectedCounts
from latentalign.wordalign.estimation.counts import JumpCounts
from latentalign.wordalign.settings import Settings


@dataclass(frozen=True)
class JumpMatrix:
    """The jumps of a batch. Places are the start, then the positions."""

    probs: Tensor  # [B,S+1,S] p(position | place), 0 beyond the end of a sentence
    end: Tensor  # [B,S] the weight of ending at a position
    index: Tensor  # [B,S+1,S] where each weight lies in `JumpTables.weights`
    norm: Tensor  # [B,S+1] Z
    end_index: Tensor  # [B,S]
    inside: Tensor  # [B,S] bool


@dataclass(frozen=True)
class JumpTables:
    """The weights of one direction."""

    weights: Tensor  # [K+1, 2W+1] float32, each class sums to 1

    @property
    def width(self) -> int:
        return (self.weights.shape[1] - 1) // 2

    @classmethod
    def initial(cls, settings: Settings) -> "JumpTables":
        d = _distances(settings)
        ahead = torch.exp(-(d - 1).abs() / 3) + 0.001
        first = torch.exp(-d.abs() / 3) + 0.001
        weights = torch.cat([ahead.repeat(settings.jump_classes, 1), first[None]])
        return cls((weights / weights.sum(1, keepdim=True)).float())

    @classmethod
    def of(cls, counts: JumpCounts, settings: Settings) -> "JumpTables":
        """One step up the likelihood of choices with different alternatives: c(d) = N(d) / E(d), smoothed.

        E depends on the weights before; the step never lowers the likelihood. All jumps are smoothed by a short-range
        prior, a class by all jumps.
        """
        prior = torch.exp(-(_distances(settings) - 1).abs() / 6) + 0.001
        prior = settings.jump_prior * prior / prior.sum()
        taken, exposure = torch.from_numpy(counts.taken), torch.from_numpy(counts.exposure)
        pooled = (taken[:-1].sum(0) + prior) / (exposure[:-1].sum(0) + settings.jump_prior)
        weight = settings.jump_weight
        classes = (taken[:-1] + weight * pooled) / (exposure[:-1] + weight)
        first = (taken[-1:] + prior) / (exposure[-1:] + settings.jump_prior)
        weights = torch.cat([classes, first])
        return cls((weights / weights.sum(1, keepdim=True)).float())

    def matrix(self, words: Tensor, lengths: Tensor) -> JumpMatrix:
        """The jumps between the positions of sentences; `words` are numbers by frequency, −1 for padding [B,S]."""
        positions, width = words.shape[1], self.width
        last = len(self.weights) - 2
        classes = torch.where(words < 0, last, words.clamp_max(last))
        classes = torch.cat([torch.full_like(classes[:, :1], last + 1), classes], dim=1)  # [B,S+1]
        place = torch.arange(positions + 1).sub_(1).clamp_min_(0)  # the start is at position 0
        row = classes * (2 * width + 1) + width
        inside = torch.arange(positions) < lengths[:, None]
        distance = (torch.arange(positions) - place[:, None]).clamp_(-width, width)
        index = row[:, :, None] + distance
        weights = self.weights.view(-1)
        probs = weights.take(index).mul_(inside[:, None])
        norm = probs.sum(2)
        end_index = row[:, 1:] + (lengths[:, None] - place[1:]).clamp_(-width, width)
        stop = weights.take(end_index)
        end = stop.div(norm[:, 1:] + stop).mul_(inside)
        return JumpMatrix(probs.div_(norm[:, :, None]), end, index, norm, end_index, inside)


class JumpSums:
    """Adds up the expected counts of one direction over batches."""

    def __init__(self, jumps: JumpTables) -> None:
        self.jumps = jumps
        self.taken = torch.zeros(jumps.weights.shape, dtype=torch.float64)
        self.exposure = torch.zeros_like(self.taken)

    def add(self, matrix: JumpMatrix, counts: ExpectedCounts) -> None:
        """The expected jumps of a batch, and where its sentences end."""
        transitions, ends = torch.cat([counts.start[:, None], counts.transitions], dim=1), counts.end
        # a batch is added up in single precision, batches in double precision
        taken, exposure = (torch.zeros(self.taken.numel()) for _ in range(2))
        index, end_index = matrix.index.view(-1), matrix.end_index.view(-1)
        taken.index_add_(0, index, transitions.view(-1)).index_add_(0, end_index, ends.reshape(-1))
        stop = self.jumps.weights.view(-1).take(matrix.end_index)
        ending = ends / (matrix.norm[:, 1:] + stop)
        choosing = transitions.sum(2) / matrix.norm
        choosing[:, 1:] += ending
        exposed = choosing[:, :, None] * matrix.inside[:, None]
        exposure.index_add_(0, index, exposed.view(-1)).index_add_(0, end_index, ending.view(-1))
        self.taken += taken.view_as(self.taken)
        self.exposure += exposure.view_as(self.exposure)

    def counts(self) -> JumpCounts:
        return JumpCounts(self.taken.numpy(), self.exposure.numpy())


def _distances(settings: Settings) -> Tensor:
    return torch.arange(-settings.widest_jump, settings.widest_jump + 1, dtype=torch.float64)


def no_jumps(settings: Settings) -> JumpCounts:
    shape = (settings.jump_classes + 1, 2 * settings.widest_jump + 1)
    return JumpCounts(np.zeros(shape), np.zeros(shape))
