"""The filter of a chain, its backward pass, and the gradient of the evidence, without a graph over the steps.

p(z_t = i | z_{t−1} = k) = (1 − o_t(k)) e^{s_t(i)} R(k,i) / Z_t(k),   Z_t(k) = Σ_i e^{s_t(i)} R(k,i)

with scores s [B,T,S] and transitions R; o_t(k) is the probability that output t comes from nowhere, in which case the
chain remembers k (0 unless there is a null state). A filter step is then one product with R between two factors, and
nothing of size [B,T,S,S] exists. Everything is in logarithms; LOG_ZERO stands for log 0.

Forward: a_t(i) = p(z_t = i | y_≤t) and log c_t = log p(y_t | y_<t). Backward: for weights u_t, the gradient of
Σ_t u_t log c_t. With u = 1 it is made of the smoothed marginals and pair marginals. With δ_t = u_t − u_{t+1} ≥ 0 all
its parts are sums of positive terms,

    ψ_t(i) = δ_t + Σ_j p(z_{t+1} = j | z_t = i) f_{t+1}(j) ψ_{t+1}(j) / c_{t+1},   γ_t(i) = a_t(i) ψ_t(i),

so that logarithms can be taken; other weights are the difference of two such.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from latentalign.alignment.chains.transitions import LOG_ZERO, NOTHING, Transitions
from latentalign.alignment.errors import NonFiniteError


@dataclass(frozen=True)
class Null:
    """The state of an output that comes from nowhere; the chain remembers its last position."""

    log_odds: Tensor  # [B,T,S]: log o/(1 − o) after position k
    start_log_odds: Tensor  # [B,T]: the same before any position
    log_f: Tensor  # [B,T]: of the output without a position

    def double(self) -> "Null":
        return Null(*(wide(part) for part in (self.log_odds, self.start_log_odds, self.log_f)))


@dataclass(frozen=True)
class Inputs:
    """A chain and its outputs, in float64, LOG_ZERO off the support."""

    scores: Tensor  # [B,T,S]: s
    log_f: Tensor  # [B,T,S]
    start: Tensor  # [B,S]: added to the scores of the first step
    transitions: Transitions
    steps: Tensor  # [B,T] bool: real steps, then padding
    null: Null | None = None

    @cached_property
    def emission(self) -> Tensor:
        """s + log f, [B,T,S]."""
        return (self.scores + self.log_f).clamp_min(LOG_ZERO)

    @cached_property
    def log_z(self) -> Tensor:
        """log Z_t(k), [B,T,S]."""
        return self.transitions.leave(self.scores)

    @cached_property
    def start_log_z(self) -> Tensor:
        """The normaliser of the first step, at any step t: [B,T]."""
        return (self.start[:, None] + self.scores).logsumexp(dim=-1)


@dataclass(frozen=True)
class Filtered:
    """What the forward pass leaves behind."""

    log_c: Tensor  # [B,T]: log p(y_t | y_<t), 0 at padding
    log_a: Tensor  # [B,T,S]: log p(z_t | y_≤t); with a null state, of the position that is remembered
    log_arrival: Tensor  # [B,T,S]: log p(z_t = i | y_<t) − s_t(i)
    start_log_a: Tensor | None = None  # [B,T]: that no position has been seen up to t; only with a null state

    def before(self, first: float) -> Tensor:
        """log a of the step before, [B,T,S]; `first` before the first step."""
        return torch.cat([torch.full_like(self.log_a[:, :1], first), self.log_a[:, :-1]], dim=1)


@dataclass(frozen=True)
class Backward:
    """What the backward pass leaves behind."""

    log_psi: Tensor  # [B,T,S]
    log_onward: Tensor  # [B,T,S]: log of what going from k at t−1 to a position at t is worth
    start_log_psi: Tensor  # [B,T]; only with a null state
    start_log_onward: Tensor  # [B,T]


def run_filter(given: Inputs, *, keep: int | None = None) -> Filtered:
    """The forward pass; with `keep`, over that many likeliest positions of every step's predictive distribution."""
    null = given.null
    log_a = torch.full_like(given.scores[:, 0], LOG_ZERO)
    start_log_a = torch.zeros_like(log_a[:, 0])
    found: list[tuple[Tensor, ...]] = []
    for t in range(given.steps.shape[1]):
        log_c, log_a, start_log_a, arrival = _step(given, t, log_a, start_log_a, keep)
        found.append((log_c, log_a, arrival, start_log_a))
    log_c, log_a, arrival, start_log_a = (torch.stack(parts, dim=1) for parts in zip(*found, strict=True))
    # padding comes last: what the filter computes there is never used
    log_c = log_c.masked_fill(~given.steps, 0.0)
    _check_evidence(log_c)
    return Filtered(log_c, log_a, arrival, None if null is None else start_log_a)


def _step(
    given: Inputs, t: int, log_a: Tensor, start_log_a: Tensor, keep: int | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One step of the filter: log c, log a, log a of the start, log arrival."""
    null = given.null
    if t == 0 or null is not None:
        first = given.start + (start_log_a - given.start_log_z[:, t] + _start_real(null, t))[:, None]
    if t > 0:
        arrival = given.transitions.arrive(log_a - given.log_z[:, t] + _real(null, t))
    arrival = first if t == 0 else arrival if null is None else torch.logaddexp(arrival, first)
    if keep is not None:
        arrival = _keep_likeliest(arrival, given.scores[:, t], keep)
    joint = (arrival + given.emission[:, t]).clamp_min(LOG_ZERO)
    if null is None:
        log_c = joint.logsumexp(dim=-1)
        return log_c, joint - log_c[:, None], torch.full_like(start_log_a, LOG_ZERO), arrival
    nowhere = null.log_f[:, t]
    # of position i
    remembered = torch.logaddexp(joint, log_a + logsigmoid(null.log_odds[:, t]) + nowhere[:, None])
    still = start_log_a + logsigmoid(null.start_log_odds[:, t]) + nowhere
    log_c = torch.logaddexp(remembered.logsumexp(dim=-1), still)
    return log_c, remembered - log_c[:, None], still - log_c, arrival


def _real(null: Null | None, t: int) -> Tensor | float:
    return 0.0 if null is None else logsigmoid(-null.log_odds[:, t])


def _start_real(null: Null | None, t: int) -> Tensor | float:
    return 0.0 if null is None else logsigmoid(-null.start_log_odds[:, t])


def _keep_likeliest(arrival: Tensor, scores: Tensor, keep: int) -> Tensor:
    """Condition the predictive distribution arrival + scores on its likeliest positions."""
    predictive = arrival + scores
    best = predictive.topk(min(keep, predictive.shape[-1]), dim=-1)
    kept = torch.full_like(arrival, LOG_ZERO).scatter(-1, best.indices, arrival.gather(-1, best.indices))
    return kept - best.values.logsumexp(dim=-1, keepdim=True)


def _check_evidence(log_c: Tensor) -> None:
    if bool((log_c > NOTHING).all()):  # NaN compares false
        return
    example, step = (~(log_c > NOTHING)).nonzero()[0].tolist()
    raise NonFiniteError(
        f"chain: expected a path that can give the outputs, received none for example {example} at step {step}; "
        "allow more transitions or check log f"
    )


def run_backward(given: Inputs, filtered: Filtered, delta: Tensor) -> Backward:
    """The backward pass for weights that fall by `delta` [B,T] ≥ 0 after step t.

    At padding they do not fall: whatever comes after the last real step is worth nothing. Without a null state the
    chain starts at the first step, and what starting later would be worth is left out.
    """
    null, log_c = given.null, filtered.log_c
    log_delta = delta.log().clamp_min(LOG_ZERO)  # [B,T]
    falls = (delta != 0).any(dim=0).tolist()
    after = torch.full_like(given.scores[:, 0], LOG_ZERO)
    never = start_after = after.new_full((len(after),), LOG_ZERO)
    kept: list[tuple[Tensor, ...]] = []
    for t in reversed(range(delta.shape[1])):
        log_psi, start_log_psi = after, start_after
        if falls[t]:
            log_psi = torch.logaddexp(after, log_delta[:, t, None])
            start_log_psi = never if null is None else torch.logaddexp(start_after, log_delta[:, t])
        worth = (given.emission[:, t] + log_psi).clamp_min(LOG_ZERO) - log_c[:, t, None]
        step = given.transitions.leave(worth) - given.log_z[:, t] + _real(null, t)
        start_step = never
        if t == 0 or null is not None:
            start_step = (given.start + worth).logsumexp(-1) - given.start_log_z[:, t] + _start_real(null, t)
        before, start_before = step, start_step
        if null is not None:
            nowhere = null.log_f[:, t] - log_c[:, t]
            before = torch.logaddexp(step, log_psi + logsigmoid(null.log_odds[:, t]) + nowhere[:, None])
            start_before = torch.logaddexp(
                start_step, start_log_psi + logsigmoid(null.start_log_odds[:, t]) + nowhere
            )
        after, start_after = before, start_before
        kept.append((log_psi, step, start_log_psi, start_step))
    return Backward(*(torch.stack(parts[::-1], dim=1) for parts in zip(*kept, strict=True)))


@dataclass(frozen=True)
class Flow:
    """Gradients of Σ_t u_t log c_t; with u = 1 and without the normalisers, expected counts. 0 at padding."""

    positions: Tensor  # [B,T,S]: γ_t(i), in log f; the smoothed marginals of real positions
    sources: Tensor  # [B,T,S]: of having been at k before a move to a position at t; 0 at the first step
    first: Tensor  # [B,T]: of the first move to a position being at t
    null: Tensor | None  # [B,T,S]: of an output from nowhere at t while k is remembered
    start_null: Tensor | None  # [B,T]: the same before any position


def flow(given: Inputs, filtered: Filtered, back: Backward) -> Flow:
    """Put forward and backward pass together."""
    log_c, real = filtered.log_c[..., None], given.steps[..., None]
    positions = filtered.log_arrival + given.emission + back.log_psi - log_c
    before = filtered.before(LOG_ZERO)
    null = start_null = None
    first_time = torch.full_like(filtered.log_c, LOG_ZERO)
    first_time[:, 0] = 0.0
    if given.null is not None:
        assert filtered.start_log_a is not None
        first_time[:, 1:] = filtered.start_log_a[:, :-1]
        nowhere = given.null.log_f[..., None] - log_c
        null = (before + logsigmoid(given.null.log_odds) + nowhere + back.log_psi).exp() * real
        start_null = first_time + logsigmoid(given.null.start_log_odds) + nowhere[..., 0] + back.start_log_psi
        start_null = start_null.exp() * given.steps
    return Flow(
        positions.exp() * real,
        (before + back.log_onward).exp() * real,
        (first_time + back.start_log_onward).exp() * given.steps,
        null,
        start_null,
    )


def pair_counts(given: Inputs, filtered: Filtered, back: Backward) -> Tensor:
    """Expected number of moves from k to i over all steps, [B,S,S]."""
    source = filtered.before(LOG_ZERO) - given.log_z
    if given.null is not None:
        source = source + logsigmoid(-given.null.log_odds)
    source = source.masked_fill(~given.steps[..., None], LOG_ZERO)
    destination = given.emission + back.log_psi - filtered.log_c[..., None]
    return given.transitions.counts(source, destination.clamp_min(LOG_ZERO))


def first_moves(given: Inputs, filtered: Filtered, back: Backward) -> Tensor:
    """Expected first moves to position i at step t, [B,T,S]."""
    worth = given.emission + back.log_psi - filtered.log_c[..., None]
    away = -given.start_log_z
    if given.null is not None:
        away = away + logsigmoid(-given.null.start_log_odds)
    before = torch.full_like(filtered.log_c, LOG_ZERO)
    before[:, 0] = 0.0
    if filtered.start_log_a is not None:
        before[:, 1:] = filtered.start_log_a[:, :-1]
    return ((before + away)[..., None] + given.start[:, None] + worth).exp() * given.steps[..., None]


def wide(values: Tensor) -> Tensor:
    """In float64, where the device has it."""
    return values if values.device.type == "mps" else values.double()
