"""Forward–backward over a chain of positions whose null state remembers the last position."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ChainPosterior:
    """Places are the start, then the positions: a word without a link leaves the chain where it was."""

    links: Tensor  # [T,B,S] p(word t is linked to position s | all words)
    log_likelihood: Tensor  # [B]
    transitions: Tensor  # [B,S+1,S] expected number of jumps from place to position
    ends: Tensor  # [B,S+1] p(the last position is this | all words)


def chain_posterior(emission: Tensor, null: Tensor, jumps: Tensor, end: Tensor) -> ChainPosterior:
    """Posterior of links given weights of words.

    `emission` [T,B,S] and `null` [T,B] are the weights of a word with a link and without; a step that is padding has
    emission 0 and null 1. `jumps` [B,S+1,S] are the weights from place to position, `end` [B,S+1] of the last place.
    One step of the chain is s ← (s · jumps) ∘ emission + null · s; every step is normalised.
    """
    steps, pairs, positions = emission.shape
    places = emission.new_zeros(steps + 1, pairs, positions + 1)  # p(place | words so far)
    places[0, :, 0] = 1
    arriving = torch.empty_like(emission)
    scale = emission.new_empty(steps, pairs)
    for t in range(steps):
        last, now = places[t], places[t + 1]
        arrived = torch.bmm(last[:, None], jumps)[:, 0].mul_(emission[t])
        torch.mul(last, null[t, :, None], out=now)
        now[:, 1:] += arrived
        torch.sum(now, 1, out=scale[t])
        now.div_(scale[t, :, None])
        torch.div(arrived, scale[t, :, None], out=arriving[t])
    total = (places[-1] * end).sum(1)
    back = end / total[:, None]  # p(later words | place) / p(later words | words so far)
    ends = places[-1] * back
    links = arriving
    leaving = torch.empty_like(emission)
    transposed = jumps.transpose(1, 2)
    for t in reversed(range(steps)):
        links[t].mul_(back[:, 1:])
        inverse = scale[t].reciprocal()[:, None]
        weighted = torch.mul(emission[t], back[:, 1:], out=leaving[t]).mul_(inverse)
        back = (null[t, :, None] * inverse * back).add_(torch.bmm(weighted[:, None], transposed)[:, 0])
    transitions = torch.bmm(places[:-1].permute(1, 2, 0), leaving.transpose(0, 1)).mul_(jumps)
    return ChainPosterior(links, scale.log().sum(0) + total.log(), transitions, ends)
