"""Expected counts of a hidden Markov model with fixed tables: what expectation–maximisation needs, fast and graph-free.

The same recursion as `forward_backward.py` for transitions that do not depend on the step, in probabilities instead of
logarithms: one matrix product and a handful of small operations a step, over tables that lie step by step in memory
(so that an example's result does not depend on how many others there are). That is exact while no table spans more than
the precision's range (in float32 some 1e−30, in float64 some 1e−280 from its largest number); tests hold it against
the other.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from latentalign.alignment.checks import check_shapes
from latentalign.alignment.errors import ConfigError


@dataclass(frozen=True)
class ExpectedCounts:
    """What a sweep over a batch gives; everything is 0 at padding and for an example without a possible path."""

    log_evidence: Tensor  # [B]: log p(y), −inf without a possible path
    positions: Tensor  # [B,T,S]: p(z_t = i | y), output t comes from position i
    null: Tensor  # [B,T]: p(output t comes from nowhere | y)
    transitions: Tensor  # [B,S,S]: expected number of moves from k to i, over outputs that come from nowhere
    start: Tensor  # [B,S]: probability that the first position is i
    end: Tensor  # [B,S]: probability that the last position is i


@torch.no_grad()
def expected_counts(
    emission: Tensor,  # [B,T,S]: f_t(i), or anything proportional to it
    transitions: Tensor,  # [S,S] or [B,S,S]: p(i | k) in row k
    start: Tensor,  # [S] or [B,S]: p(i) of the first position
    *,
    mask: Tensor | None = None,  # [B,S] bool, True = real position
    steps: Tensor | None = None,  # [B,T] bool: real outputs first, then padding
    null: float = 0.0,  # probability that an output comes from nowhere; the chain remembers where it was
    null_emission: Tensor | None = None,  # [B,T]: f of such an output; needed where null > 0
    end: Tensor | None = None,  # [S] or [B,S]: a factor for the last position
) -> ExpectedCounts:
    """One sweep forward and backward over a batch.

    Rows of `transitions` and `start` need not sum to 1: the sums are over what is given. An output that comes from
    nowhere before any position was visited leaves the chain at its start. Everything has the type of `emission`;
    float32 is enough for tables of ordinary probabilities. Masks are True = real.

    Example:
        >>> f = torch.tensor([[[0.9, 0.1], [0.2, 0.8]]])
        >>> found = expected_counts(f, torch.full((2, 2), 0.5), torch.full((2,), 0.5))
        >>> found.positions
        tensor([[[0.9000, 0.1000],
                 [0.2000, 0.8000]]])
    """
    sizes = check_shapes(emission=(emission, "B T S"))
    batch, count, positions = emission.shape
    if null > 0 and null_emission is None:
        raise ConfigError(
            "null_emission: expected f [B,T] of outputs from nowhere with null > 0, received none; pass it"
        )
    steps = torch.ones(batch, count, dtype=torch.bool, device=emission.device) if steps is None else steps
    check_shapes(sizes, steps=(steps, "B T"))
    if mask is not None:
        check_shapes(sizes, mask=(mask, "B S"))
    nowhere = emission.new_zeros(batch, count) if null_emission is None else null_emission * null
    # the largest f of an output is made 1, so that a product of small numbers does not underflow
    peak = torch.maximum(emission.amax(dim=-1), nowhere).clamp_min(torch.finfo(emission.dtype).tiny)  # [B,T]
    f = emission * ((1 - null) / peak)[..., None]
    tables = _Tables.of(f, nowhere / peak, _with_start(transitions, start, batch), mask, steps)
    memory, real, scale = _forward(tables)
    last = emission.new_ones(batch, positions + 1)
    if end is not None:
        last[:, 1:] = end
    total = (memory[-1] * last).sum(dim=-1)  # [B]
    possible = total > 0
    onward, worth = _backward(tables, scale, last / total.clamp_min(torch.finfo(total.dtype).tiny)[:, None])
    moves = torch.bmm(memory[:-1].permute(1, 2, 0), worth.transpose(0, 1)) * tables.moves  # [B,1+S,S]
    log_evidence = ((scale.T * peak).log() * steps).sum(dim=-1) + total.log()
    smoothed = real.mul_(onward[:, :, 1:]).transpose(0, 1)
    return ExpectedCounts(
        log_evidence.masked_fill(~possible, -torch.inf),
        smoothed,
        zero_at(1 - smoothed.sum(dim=-1), ~(steps & possible[:, None])).clamp_min(0.0),
        moves[:, 1:],
        moves[:, 0],
        (memory[-1] * onward[-1] if count else last)[:, 1:],
    )


def zero_at(values: Tensor, where: Tensor) -> Tensor:
    return values.masked_fill(where, 0.0)


@dataclass(frozen=True)
class _Tables:
    """What a sweep reads, step by step in memory."""

    f: Tensor  # [T,B,S], 0 at padding and masked positions
    nowhere: Tensor  # [T,B]
    moves: Tensor  # [B,1+S,S]: row 0 is the start
    steps: Tensor  # [T,B]

    @classmethod
    def of(cls, f: Tensor, nowhere: Tensor, moves: Tensor, mask: Tensor | None, steps: Tensor) -> "_Tables":
        """From f [B,T,S] and f of outputs from nowhere [B,T]."""
        if mask is not None:
            f = f.masked_fill(~mask[:, None], 0.0)
        by_step = (f * steps[..., None]).transpose(0, 1).contiguous()
        return cls(by_step, nowhere.T.contiguous(), moves, steps.T)


def _with_start(transitions: Tensor, start: Tensor, batch: int) -> Tensor:
    positions = transitions.shape[-1]
    first = start.expand(batch, positions)[:, None]
    return torch.cat([first, transitions.expand(batch, positions, positions)], dim=1)


def _forward(tables: _Tables) -> tuple[Tensor, Tensor, Tensor]:
    """Filtered memory from before the first output on [T+1,B,1+S], its part of real positions [T,B,S], scales [T,B]."""
    count, batch, positions = tables.f.shape
    memory = tables.f.new_zeros(count + 1, batch, positions + 1)
    memory[0, :, 0] = 1.0
    real, scale = torch.empty_like(tables.f), tables.f.new_empty(count, batch)
    tiny = torch.finfo(tables.f.dtype).tiny
    full = tables.steps.all(dim=1).tolist()
    # views by step, made once: a step is then little more than its arithmetic
    states, tails = memory[:, :, None].unbind(), memory[1:, :, None, 1:].unbind()
    sums, nowhere = scale[..., None, None].unbind(), tables.nowhere[..., None, None].unbind()
    for t, (now, f) in enumerate(zip(real[:, :, None].unbind(), tables.f[:, :, None].unbind(), strict=True)):
        before, after, total = states[t], states[t + 1], sums[t]  # [B,1,1+S] twice, [B,1,1]
        torch.bmm(before, tables.moves, out=now).mul_(f)
        torch.mul(before, nowhere[t], out=after)
        tails[t].add_(now)
        torch.sum(after, dim=-1, keepdim=True, out=total).clamp_min_(tiny)
        if not full[t]:
            padding = ~tables.steps[t, :, None, None]
            total.masked_fill_(padding, 1.0)
            torch.where(padding, before, after, out=after)
        after.div_(total)
    return memory, real.div_(scale[..., None]), scale


def _backward(tables: _Tables, scale: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """What a memory after output t is worth [T,B,1+S], and a move to position i at t [T,B,S]."""
    count, batch, positions = tables.f.shape
    onward = tables.f.new_empty(count, batch, positions + 1)
    worth = tables.f / scale[..., None]
    back = tables.moves.transpose(1, 2)  # [B,S,1+S]
    full = tables.steps.all(dim=1).tolist()
    states, tails = onward[:, :, None].unbind(), onward[:, :, None, 1:].unbind()
    moves, nowhere = worth[:, :, None].unbind(), (tables.nowhere / scale)[..., None, None].unbind()
    onward[-1:] = last
    for t in reversed(range(count)):
        now = moves[t].mul_(tails[t])
        if t == 0:
            break
        after, before = states[t], states[t - 1]
        torch.bmm(now, back, out=before).addcmul_(after, nowhere[t])
        if not full[t]:
            torch.where(tables.steps[t, :, None, None], before, after, out=before)
    return onward, worth
