"""Alignments that remember: a first-order chain over the positions.

p(z_t = i | z_{t−1} = k) = softmax_i(s_t(i) + r(k, i)). Everything stays exact: the marginal by the filter, the
posterior by the backward pass, the best path by Viterbi's algorithm. Given the outputs the posterior is a chain with
the same transitions and other scores, s_t + log f_t + log ψ_t, where ψ is what the later outputs say; so whatever a
chain can do, its posterior can.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import torch
from torch import Tensor, nn

from latentalign.alignment.chains.evidence import log_evidence
from latentalign.alignment.chains.forward_backward import Inputs, Null, run_backward, run_filter, wide
from latentalign.alignment.chains.movement import build_transitions
from latentalign.alignment.chains.paths import best_path, draw_paths, with_a_future
from latentalign.alignment.chains.pruning import marginalise_pruned_chain
from latentalign.alignment.chains.transitions import LOG_ZERO, NOTHING, Transitions
from latentalign.alignment.checks import check_count, check_shapes
from latentalign.alignment.errors import ShapeError
from latentalign.alignment.latents.categorical import Categorical, check_finite
from latentalign.alignment.latents.dependence import Dependence, SequentialSteps
from latentalign.alignment.latents.latent import DiscreteLatent, Latent, LogTerms, Marginalised
from latentalign.alignment.likelihoods.likelihood import Likelihood
from latentalign.alignment.masks import expand_mask, zero_where_masked
from latentalign.alignment.precision import unrounded, widened


@dataclass(frozen=True)
class Chain(DiscreteLatent):
    """An alignment to one position a step that depends on the position before. Build it with `from_scores`.

    Example:
        >>> from latentalign.alignment import MonotoneTransitions
        >>> chain = Chain.from_scores(torch.zeros(1, 2, 2), transitions=MonotoneTransitions(2))
        >>> chain.mean()  # from the first position it may go on, from the second it stays
        tensor([[[0.5000, 0.5000],
                 [0.2500, 0.7500]]])
    """

    scores: Tensor  # [B,T,S]
    mask: Tensor  # [B,T,S] bool
    transitions: Transitions
    steps: Tensor  # [B,T] bool: real steps first, then padding, which is no step of the chain
    start: Tensor  # [B,S]: added to the scores of the first step
    dtype: torch.dtype  # of what is returned; sums are in float64
    support: Tensor = field(init=False)  # [B,T,S]: the positions from which the chain can make all its steps
    family = "chain"

    def __post_init__(self) -> None:
        self._check_steps(self.steps)
        object.__setattr__(self, "support", with_a_future(self.mask, self.steps, self.transitions))

    @classmethod
    def from_scores(
        cls,
        scores: Tensor,
        mask: Tensor | None = None,
        *,
        transitions: Transitions,
        steps: Tensor | None = None,
        start: Tensor | None = None,
    ) -> "Chain":
        """A chain by scores [B,T,S] over the real positions of mask [B,S] or [B,T,S], True = real.

        `steps` [B,T] says which steps are real (an `AlignmentProblem` says it by its weights); `start` [S] or [B,S] is
        added to the scores of the first step.
        """
        check_shapes(scores=(scores, "B T S"))
        mask = expand_mask(mask, scores)
        check_finite("scores", zero_where_masked(scores, mask))
        batch, count, positions = scores.shape
        if transitions.positions != positions:
            raise ShapeError(
                f"transitions: expected {positions} positions as in the scores, received "
                f"{transitions.positions}; build them for this memory"
            )
        if steps is None:
            steps = torch.ones(batch, count, dtype=torch.bool, device=scores.device)
        dtype = unrounded(scores).dtype  # of what comes out; half precision has too few digits inside
        scores = scores.to(widened(scores.dtype))
        start = scores.new_zeros(positions) if start is None else start.to(scores.dtype)
        check_finite("start", start)
        return cls(scores, mask, transitions, steps, start.expand(batch, positions), dtype)

    # --- what it is ---

    @property
    def shape(self) -> torch.Size:
        return self.scores.shape

    @property
    def device(self) -> torch.device:
        return self.scores.device

    @property
    def dependence(self) -> Dependence:
        return SequentialSteps(self.steps)

    def over_steps(self, steps: Tensor) -> "Chain":
        self._check_steps(steps)
        return self if bool((steps == self.steps).all()) else replace(self, steps=steps & self.steps)

    def detach(self) -> "Chain":
        return replace(
            self,
            scores=self.scores.detach(),
            transitions=self.transitions.detach(),
            start=self.start.detach(),
        )

    def free_scores(self) -> Tensor:
        return zero_where_masked(self.scores, self.support)

    def by_scores(self, scores: Tensor) -> "Chain":
        return replace(self, scores=scores)

    def within(self, prior: Latent) -> "Chain":
        possible = prior.discrete("prior:", instead="build both with the same class").support
        if bool((possible | ~self.support).all()):
            return self
        both = self.support & possible
        # a step that shares no position keeps the prior's: the bound stays finite
        return replace(self, mask=both | (possible & ~both.any(dim=-1, keepdim=True)))

    def truncated(self, least: float) -> "Chain":
        likely = self.mean().detach() > least
        # the best path stays, so that there is one
        return replace(self, mask=self.support & likely.scatter(-1, self.mode()[..., None], True))

    # --- expectations ---

    def mean(self) -> Tensor:
        """p(z_t = i), the outputs unseen: [B,T,S], 0 at padding."""
        return self._log_marginals.exp().to(self.dtype) * self.steps[..., None]

    def log_terms(self) -> LogTerms:
        nodes, log_z = self._filled(self.scores), self._log_z
        first = nodes[:, :1] + self._start[:, None] - self._start_log_z[:, None, None]
        possible = self.support & self.steps[..., None]
        came = _one_later(self.support, False) & self.steps[..., None]
        return LogTerms(
            zero_where_masked(torch.cat([first, nodes[:, 1:]], dim=1), possible),
            self.support,
            self.transitions.pairs,
            -zero_where_masked(log_z, came),
            self.steps,
            self.transitions.allowed,
        )

    def expect(self, terms: LogTerms) -> Tensor:
        marginals = self._log_marginals.exp() * self.steps[..., None]
        before = _one_later(marginals, 0.0)
        expected = (marginals * terms.nodes).sum(dim=-1)
        if terms.sources is not None:
            expected = expected + (before * terms.sources).sum(dim=-1)
        if terms.pairs is not None:
            source = _one_later(self._log_marginals, LOG_ZERO) - self._log_z
            live = self.transitions.renewed()
            expected = expected + live.expected(source, self._filled(self.scores), wide(terms.pairs))
        return zero_where_masked(expected, self.steps).to(self.dtype)

    # --- given the outputs ---

    def marginalise(self, log_f: Tensor) -> Marginalised:
        impossible = (log_f == -torch.inf) | ~self.support
        hopeless = impossible.all(dim=-1) & self.steps  # outputs that no position can give
        possible_f = log_f.to(widened(log_f.dtype)).masked_fill(impossible, LOG_ZERO)
        possible_f = possible_f.masked_fill(hopeless[..., None], 0.0)
        scores = self._filled(self.scores)
        value = log_evidence(scores, possible_f, self.start, self.transitions, self.steps)
        posterior = partial(self.detach()._posterior, possible_f.detach())
        known = zero_where_masked(log_f.detach(), self.support & self.steps[..., None])
        return Marginalised(value.masked_fill(hopeless, -torch.inf).to(self.dtype), known, posterior)

    def marginalise_pruned(self, likelihood: Likelihood, prune: float) -> Marginalised:
        if not likelihood.is_probability:
            return self.marginalise(likelihood.everywhere(self.support))  # without a bound on f, all count
        found = marginalise_pruned_chain(self, likelihood, prune)
        posterior = partial(self.detach()._posterior, found.mixed_log_f)
        return Marginalised(found.surrogate, found.log_f, posterior, found.evaluated, found.dropped)

    def _posterior(self, log_f: Tensor) -> "Chain":
        given = self.inputs(log_f)
        back = run_backward(given, run_filter(given), self.last_step().to(given.scores.dtype))
        scores = (given.emission + back.log_psi).clamp_min(LOG_ZERO)
        possible = self.support & (scores > NOTHING)
        scores = scores - scores.amax(dim=-1, keepdim=True)
        real = self.steps[..., None]
        scores, possible = torch.where(real, scores, given.scores), torch.where(real, possible, self.support)
        return replace(self, scores=zero_where_masked(scores, possible), mask=possible)

    def predictive(self, likelihood: Likelihood, *, keep: int | None = None) -> Categorical:
        """p(z_t | y_<t): the filter's; with `keep`, conditioned at every step on that many likeliest positions."""
        with torch.no_grad():
            # the last output changes nothing for the steps before it
            alone = self.shape[1] == 1
            log_f = torch.zeros_like(self.scores) if alone else likelihood.everywhere(self.support)
            filtered = run_filter(self.inputs(wide(log_f).clamp_min(LOG_ZERO)), keep=keep)
            log_probs = filtered.log_arrival + self._filled(self.scores)
        possible = log_probs > NOTHING
        return Categorical(log_probs.masked_fill(~possible, -torch.inf).to(self.dtype), possible)

    def pair_marginals(self) -> Tensor:
        """p(z_{t−1} = k, z_t = i), [B,T,S,S], 0 at the first step and at padding: for small problems."""
        source = _one_later(self._log_marginals, LOG_ZERO) - self._log_z
        matrix = self._matrix if self._matrix.dim() == 2 else self._matrix[:, None]
        joint = source[..., None] + self._filled(self.scores)[:, :, None] + matrix
        return (joint.exp() * self.steps[..., None, None]).to(self.dtype)

    # --- paths ---

    def sample(self, samples: int, generator: torch.Generator | None = None) -> Tensor:
        check_count("samples", samples, hint="draw one sample or more")
        with torch.no_grad():
            return draw_paths(
                self._filled(self.scores), self._start, self.transitions, self.steps, samples, generator
            )

    def log_prob(self, positions: Tensor) -> Tensor:
        """log p(z_t | z_{t−1}) of paths [K,B,T]: [K,B,T], 0 at padding."""
        terms = self.log_terms()
        nodes = torch.where(self.support, terms.nodes, -torch.inf).expand(*positions.shape, -1)
        found = nodes.gather(-1, positions[..., None])[..., 0]
        before = positions[..., :-1]
        assert terms.sources is not None
        sources = terms.sources[:, 1:].expand(*before.shape, -1).gather(-1, before[..., None])[..., 0]
        later = found[..., 1:] + sources + self._pairs_of(before, positions[..., 1:])
        log_probs = torch.cat([found[..., :1], later], dim=-1)
        log_probs = log_probs.masked_fill(log_probs < NOTHING, -torch.inf)
        return zero_where_masked(log_probs, self.steps.expand_as(log_probs)).to(self.dtype)

    def _pairs_of(self, before: Tensor, after: Tensor) -> Tensor:
        matrix = self.transitions.renewed().dense()
        if matrix.dim() == 2:
            return matrix[before, after]
        example = torch.arange(matrix.shape[0], device=matrix.device)[:, None]
        return matrix[example, before, after]

    def mode(self) -> Tensor:
        """Viterbi's path, [B,T]; padding stays where the path ends."""
        with torch.no_grad():
            return best_path(self._filled(self.scores), self._start, self._log_z, self._matrix, self.steps)

    # --- inside ---

    def _filled(self, scores: Tensor) -> Tensor:
        """Scores with log 0 off the support."""
        return wide(scores).masked_fill(~self.support, LOG_ZERO)

    @property
    def _start(self) -> Tensor:
        return wide(self.start)

    @property
    def _matrix(self) -> Tensor:
        """r(k, i), [S,S] or [B,S,S], log 0 where forbidden."""
        return self.transitions.detach().dense()

    def inputs(self, log_f: Tensor, null: Null | None = None) -> Inputs:
        """The chain with outputs, as the recursions take them."""
        return Inputs(
            self._filled(self.scores),
            wide(log_f),
            self._start,
            self.transitions.detach(),
            self.steps,
            None if null is None else null.double(),
        )

    @cached_property
    def _log_z(self) -> Tensor:
        return self.transitions.renewed().leave(self._filled(self.scores))

    @cached_property
    def _start_log_z(self) -> Tensor:
        return (self._start + self._filled(self.scores)[:, 0]).logsumexp(dim=-1)

    @cached_property
    def _log_marginals(self) -> Tensor:
        """log p(z_t), [B,T,S]: the filter without outputs, with a graph."""
        scores, live = self._filled(self.scores), self.transitions.renewed()
        log_m = self._start + scores[:, 0] - self._start_log_z[:, None]
        found = [log_m]
        for t in range(1, self.shape[1]):
            found.append(live.arrive(found[-1] - self._log_z[:, t]) + scores[:, t])
        return torch.stack(found, dim=1)

    def last_step(self) -> Tensor:
        """1 at the last real step, [B,T]."""
        after = torch.cat([self.steps[:, 1:], torch.zeros_like(self.steps[:, :1])], dim=1)
        return self.steps & ~after

    def _check_steps(self, steps: Tensor) -> None:
        batch, count, _ = self.shape
        check_shapes({"B": batch, "T": count}, steps=(steps, "B T"))
        if bool((steps[:, 1:] & ~steps[:, :-1]).any()):
            raise ShapeError(
                "steps: expected real steps first and then padding, received another order; a chain has no holes"
            )


def _one_later(values: Tensor, first: float | bool) -> Tensor:
    """Values of the step before, [B,T,S]; `first` at the first step."""
    return torch.cat([torch.full_like(values[:, :1], first), values[:, :-1]], dim=1)


class ChainDistribution(nn.Module):
    """Makes chains of scores; owns what is learnt of the transitions.

    `transitions`: jump (with scores for distances up to ± `width`), monotone or strictly-monotone.
    """

    def __init__(self, transitions: str = "jump", width: int = 10) -> None:
        super().__init__()
        self.transitions = build_transitions(transitions, width)

    def forward(self, scores: Tensor, mask: Tensor | None = None) -> Chain:
        """A chain by scores [B,T,S]; mask [B,S] or [B,T,S], True = real."""
        return Chain.from_scores(scores, mask, transitions=self.transitions(scores.shape[-1]))
