"""What a memory network hands over once it has read a story: scores of the latent hop and a likelihood."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from latentalign.alignment.likelihoods.likelihood import Likelihood
from latentalign.alignment.masks import masked_log_softmax


@dataclass(frozen=True)
class Reading:
    """One pass over a batch. Z is the number of values of the latent: slots S, or paths S·S·…"""

    scores: Tensor  # [B,Z]
    mask: Tensor  # [B,Z] bool
    likelihood: Likelihood
    earlier: tuple[Tensor, ...] = ()  # scores [B,S] of the hops before the latent one, in order
    hops_in_latent: int = 1


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Attention over the real slots; a story has at least one."""
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)


def hop_targets(support: Tensor, hops: int) -> Tensor:
    """The supporting fact of each hop: [B,P] slots (−1 = none) -> [B,hops], −1 where no fact is known.

    With fewer facts than hops the last one is repeated; with more, the last `hops` of them are used.
    """
    count = (support >= 0).sum(dim=1, keepdim=True)
    hop = torch.arange(hops, device=support.device) + (count - hops).clamp_min(0)  # [B,hops]
    chosen = support.gather(1, torch.minimum(hop, count - 1).clamp_min(0))
    return chosen.masked_fill(count == 0, -1)


def fact_loss(scores: Tensor, mask: Tensor, target: Tensor, *, margin: float | None = None) -> Tensor:
    """How far scores [B,S] are from choosing the target slot [B]: [B]; 0 where the target is −1.

    Without a margin, the negative log likelihood of the target under the attention; with one, the sum over
    the other slots of max(0, margin − s_target + s_other).
    """
    known = target >= 0
    chosen = target.clamp_min(0)[:, None]
    if margin is None:
        loss = -masked_log_softmax(scores, mask).gather(1, chosen)[:, 0]
    else:
        violation = (margin - scores.gather(1, chosen) + scores).clamp_min(0.0)
        others = mask.scatter(1, chosen, False)
        loss = violation.masked_fill(~others, 0.0).sum(dim=1)
    return loss.masked_fill(~known, 0.0)


def walk_paths(
    state: Tensor,
    keys: list[Tensor],
    values: list[Tensor],
    mask: Tensor,
    *,
    keep: Callable[[Tensor], Tensor] = lambda state: state,
) -> tuple[Tensor, Tensor, Tensor]:
    """Every path through the slots: log p(path), mask and final state, [B,S^H], [B,S^H], [B,S^H,D].

    A hop adds the value of its slot to what is kept of the state, and the next hop's attention depends on
    it. Slots of the last hop vary fastest.
    """
    states, log_path, path_mask = (
        state[:, None],
        state.new_zeros(state.shape[0], 1),
        mask.new_ones(len(mask), 1),
    )
    for key, value in zip(keys, values, strict=True):
        log_probs = masked_log_softmax(states @ key.transpose(1, 2), mask[:, None])  # [B,P,S]
        log_path = (log_path[..., None] + log_probs).flatten(1)
        path_mask = (path_mask[..., None] & mask[:, None]).flatten(1)
        states = (keep(states)[:, :, None] + value[:, None]).flatten(1, 2)
    return log_path, path_mask, states


def hop_marginals(probs: Tensor, hops: int, slots: int) -> Tensor:
    """Attention of each hop [B,hops,S] from probabilities [B,Z] of paths."""
    if hops == 1:
        return probs[:, None]
    table = probs.view(len(probs), *[slots] * hops)
    axes = range(1, hops + 1)
    return torch.stack([table.sum(dim=[axis for axis in axes if axis != hop]) for hop in axes], dim=1)
