"""Σ_i p_i f_i for every hypothesis of a beam and every word that may come next, with f at few positions.

`sum_everywhere` evaluates f at every position: slow and obvious. `sum_where_needed` evaluates few of them and promises:

    In every sentence, a continuation that belongs in the beam has its log-probability to `tolerance` nats, and no other
    one comes out more than `tolerance` above the last that belongs.

To belong is to be among the `places` likeliest continuations besides the end of sentence, or an end at least as likely
as the last of them.

How it is done. One position's f costs a product with the whole vocabulary, but a softmax over a few candidate words
is an upper bound of their f and costs next to nothing. What has been summed of a continuation only grows, so the sum of
the `places`-th best one is a threshold for everything that belongs in the end.
1. Evaluate the likeliest positions of every hypothesis. The best words so far are the candidates.
2. Leave out positions that, by their upper bounds, change no candidate above the threshold by more than the tolerance.
   Evaluate the others. Add half of the bounds of what was left out as an estimate: it is wrong by half at most.
3. A word that is no candidate may still belong where much probability was left out: evaluate all positions there.

All probabilities here are those of whole hypotheses, over that of the best hypothesis of the same sentence.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from latentalign.alignment.likelihoods.likelihood import ContextLikelihood
from latentalign.alignment.likelihoods.softmax_head import SoftmaxHead, blocks
from latentalign.translation.beam.search import BeamStatus, Scores
from latentalign.translation.data.tokenizer import NEVER

CANDIDATES = 24  # words of a sentence whose sums are bounded
ESTIMATE = 0.5  # of an upper bound: the error is then at most half of the bound
# of the likeliest position's probability: positions with as much are evaluated in the first step
LIKELY = 0.25
BOUNDED_TOGETHER = 32  # sentences whose upper bounds are computed at once
# nats: a hypothesis further behind the best counts as no further, since its probability must not vanish
FURTHEST_BEHIND = -60.0


@dataclass(frozen=True)
class PositionSums:
    """Σ_i p_i f_i as the search takes it, and what f(word) at one position needs once a word is chosen."""

    scores: Scores
    # [A,W,K] of the softmax f, +inf where f was not evaluated; None unless asked for
    log_normalizers: Tensor | None


def sum_everywhere(
    likelihood: ContextLikelihood,
    weights: Tensor,
    positions: Tensor,
    beam: BeamStatus,
    *,
    normalizers: bool = False,
) -> PositionSums:
    """Σ_i p_i f_i for weights and positions [A,W,K]; 0 for tokens that never come."""
    behind = _behind_the_best(beam)
    rows = torch.arange(weights[..., 0].numel(), device=weights.device)
    total = weights.new_zeros(*weights.shape[:2], likelihood.width)
    found = torch.empty_like(weights)
    for k in range(weights.shape[2]):
        logits = _logits(likelihood, rows, positions[..., k].flatten()).to(weights.dtype)  # [A·W,V]
        total += logits.softmax(-1).view_as(total) * (weights[..., k] * behind.exp())[..., None]
        found[..., k] = logits.logsumexp(-1).view_as(behind)
    for token in NEVER:
        total[..., token] = 0.0
    return PositionSums(Scores(total, behind, probabilities=True), found if normalizers else None)


def sum_where_needed(
    likelihood: ContextLikelihood,
    weights: Tensor,
    positions: Tensor,
    beam: BeamStatus,
    *,
    end_token: int,
    tolerance: float,
    normalizers: bool = False,
) -> PositionSums:
    """The same for weights that fall from left to right, to `tolerance` nats wherever the beam may be changed."""
    behind = _behind_the_best(beam)
    found = torch.full_like(weights, torch.inf) if normalizers else None
    sums = _PartialSums.begin(likelihood, weights * behind.exp()[..., None], positions, found)
    if weights.shape[-1] > 1:
        sums.evaluate(sums.left >= LIKELY * sums.weights[..., :1])
        candidates = _Candidates.find(sums, beam, end_token)
        needed, left_out = candidates.needed(sums, tolerance)
        sums.evaluate(needed)
        _finish(sums, candidates, beam, left_out, needed.any(-1, keepdim=True), tolerance)
    return PositionSums(Scores(sums.total, behind, probabilities=True), found)


def _behind_the_best(beam: BeamStatus) -> Tensor:
    """Log-probability of every hypothesis over that of its sentence's best: [A,W]."""
    return (beam.log_probs - beam.log_probs.amax(1, keepdim=True)).clamp_min(FURTHEST_BEHIND)


def _logits(likelihood: ContextLikelihood, rows: Tensor, positions: Tensor) -> Tensor:
    """Of all words [n,V] at positions [n], given the flat row [A,W] of each."""
    values, queries = likelihood.values, likelihood.queries
    place = rows // queries.shape[1] * values.shape[1] + positions
    logits = likelihood.head(
        values.flatten(0, 1).index_select(0, place), queries.flatten(0, 1).index_select(0, rows)
    )
    assert isinstance(logits, Tensor)
    return logits


@dataclass
class _PartialSums:
    """Σ p f over the positions that have been evaluated."""

    likelihood: ContextLikelihood
    positions: Tensor  # [A,W,K]
    weights: Tensor  # [A,W,K]
    left: Tensor  # [A,W,K] the weights of positions that have not been evaluated, 0 elsewhere
    total: Tensor  # [A,W,V]
    log_normalizers: Tensor | None  # [A,W,K], filled where f is evaluated

    @classmethod
    def begin(
        cls,
        likelihood: ContextLikelihood,
        weights: Tensor,
        positions: Tensor,
        log_normalizers: Tensor | None,
    ) -> "_PartialSums":
        """With the first position of every hypothesis."""
        total = weights.new_empty(*weights.shape[:2], likelihood.width)
        sums = cls(likelihood, positions, weights, weights.clone(), total, log_normalizers)
        sums.left[..., 0] = 0.0
        flat = total.flatten(0, 1)
        rows = torch.arange(len(flat), device=weights.device)
        for block in blocks(*flat.shape):
            sums._weighted_probs(rows[block], rows[block] * weights.shape[2], out=flat[block])
        for token in NEVER:
            total[..., token] = 0.0
        return sums

    def evaluate(self, where: Tensor) -> None:
        """Add p f of these positions [A,W,K], each once."""
        where = where & (self.left > 0)
        pairs = where.flatten().nonzero().squeeze(1)
        if len(pairs) == 0:
            return
        flat = self.total.flatten(0, 1)
        for block in blocks(len(pairs), flat.shape[1]):
            rows = pairs[block] // where.shape[-1]
            flat.index_add_(0, rows, self._weighted_probs(rows, pairs[block]))
        for token in NEVER:
            self.total[..., token] = 0.0
        self.left.masked_fill_(where, 0.0)

    def _weighted_probs(self, rows: Tensor, pairs: Tensor, out: Tensor | None = None) -> Tensor:
        """p f [n,V] of pairs of the flat [A,W,K], given the flat row [A,W] of each."""
        logits = _logits(self.likelihood, rows, self.positions.flatten()[pairs])
        logits = logits.to(self.weights.dtype)  # a model of low precision is summed in more
        largest = None if self.log_normalizers is None else logits.amax(1)
        probs = torch.softmax(logits, dim=1, out=logits if out is None else out)
        if self.log_normalizers is not None and largest is not None:
            # of the largest logit and its probability: two passes less than a logsumexp
            self.log_normalizers.view(-1)[pairs] = largest - probs.amax(1).log()
        return probs.mul_(self.weights.flatten()[pairs][:, None])

    def upper_bounds(self, pairs: Tensor, words: Tensor) -> Tensor:
        """Upper bounds of f for words [A,C] of their sentences at pairs [n] of the flat [A,W,K], in order: [n,C]."""
        f = self.likelihood
        if not isinstance(f.head, SoftmaxHead):
            return self.total.new_ones(len(pairs), words.shape[1])
        each = self.weights[0].numel()
        counts = torch.bincount(pairs // each, minlength=len(words))
        before = counts.cumsum(0) - counts
        counts, order = counts.sort()
        found = self.total.new_empty(len(pairs), words.shape[1])
        # sentences with about as many pairs together; one that has fewer than the others repeats its last
        for count, some in zip(counts.split(BOUNDED_TOGETHER), order.split(BOUNDED_TOGETHER), strict=True):
            if not bool(count[-1]):
                continue
            count, some = count[count > 0], some[count > 0]
            last = (count - 1)[:, None]
            index = before[some, None] + torch.arange(int(count[-1]), device=last.device).minimum(last)
            chosen = pairs[index]
            rows = self.positions.flatten()[chosen], chosen % each // self.weights.shape[2]
            bounds = f.head.among(f.values[some], f.queries[some], rows, words[some])
            found[index] = bounds.to(found.dtype)
        return found.exp_()


@dataclass(frozen=True)
class _Candidates:
    """The likeliest words of every sentence after the first evaluations, and what has been summed of them."""

    words: Tensor  # [A,C], the end last
    summed: Tensor  # [A,W,C]
    best: Tensor  # [A,W,1] the largest sum of a hypothesis
    threshold: Tensor  # [A,1,1] the least that a continuation needs to belong in the beam
    others: Tensor  # [A,1,1] the largest sum of a word that is no candidate

    @classmethod
    def find(cls, sums: _PartialSums, beam: BeamStatus, end_token: int) -> "_Candidates":
        best, of_word = sums.total.amax(-1, keepdim=True), sums.total.amax(1)  # [A,W,1], [A,V]
        of_word[:, end_token] = 0.0  # it takes no place in the beam
        top, words = of_word.topk(min(CANDIDATES, of_word.shape[1]))
        words = torch.cat([words, torch.full_like(words[:, :1], end_token)], dim=1)
        summed = sums.total.gather(2, words[:, None].expand(-1, best.shape[1], -1))
        return cls(words, summed, best, _threshold(summed, beam), top[:, -1, None, None])

    @property
    def columns(self) -> Tensor:
        """[A,W,C] where the candidates are in the sums."""
        return self.words[:, None].expand_as(self.summed)

    def needed(self, sums: _PartialSums, tolerance: float) -> tuple[Tensor, Tensor]:
        """Positions to evaluate [A,W,K], and upper bounds of what the candidates lose by the others [A,W,C].

        Why the promise holds for a candidate: a position is left out with an estimate, which is wrong by at most
        (1 − ESTIMATE) of its bound, or without one, which loses at most its weight (`rest`). In nats this is divided
        by the candidate's sum, or by the threshold if that is larger. Positions are left out, the smallest changes
        first, while all of it together stays within the tolerance.
        """
        summed, left = self.summed, sums.left
        # Weights fall from left to right. The last ones need no bound while they take at most half of the
        # tolerance together; nor does a hypothesis that cannot belong even with all that is left.
        remaining = _remaining(left)
        unsure = (
            (remaining > tolerance / 2 * self.threshold)
            & (self.best + remaining[..., :1] > self.threshold)
            & (left > 0)
        )
        rest = left.masked_fill(unsure, 0.0).sum(-1, keepdim=True)  # [A,W,1]
        pairs = unsure.flatten().nonzero().squeeze(1)  # [n]
        rows = pairs // unsure.shape[-1]

        bounds = sums.upper_bounds(pairs, self.words).mul_(left.flatten()[pairs, None])  # [n,C]
        scale = torch.maximum(summed, self.threshold).clamp_min(torch.finfo(summed.dtype).tiny).reciprocal_()
        # only candidates that can belong count
        scale.masked_fill_(summed + _per_row(summed, rows, bounds) <= self.threshold, 0.0)
        change = torch.zeros_like(left)  # [A,W,K] by each position at most, in nats
        change.view(-1)[pairs] = (bounds * scale.flatten(0, 1)[rows]).amax(-1)
        change, order = change.sort(dim=-1)
        small = (1 - ESTIMATE) * change.cumsum(-1) + rest / self.threshold <= tolerance
        left_out = unsure & torch.zeros_like(small).scatter_(-1, order, small)
        # nor may a word that is no candidate come to belong by what is left out
        lost = _remaining(left.masked_fill(~left_out, 0.0)) + rest
        left_out &= lost <= torch.maximum(self.threshold - self.others, tolerance * self.threshold)
        estimated = left_out.flatten()[pairs].nonzero().squeeze(1)
        return unsure & ~left_out, _per_row(summed, rows[estimated], bounds[estimated])


def _finish(
    sums: _PartialSums,
    candidates: _Candidates,
    beam: BeamStatus,
    left_out: Tensor,
    changed: Tensor,
    tolerance: float,
) -> None:
    """Add the estimates; evaluate everything of a hypothesis where a word that is no candidate may belong."""
    columns = candidates.columns
    summed = sums.total.gather(2, columns)
    sums.total.scatter_(2, columns, 0.0)
    other = sums.total.amax(-1, keepdim=True)  # [A,W,1]
    remaining = _remaining(sums.left)  # [A,W,K]
    threshold = _threshold(summed, beam)  # [A,1,1]
    # where nothing was evaluated since, `needed` has made sure of it
    missed = changed & (other + remaining[..., :1] > threshold)  # [A,W,1]
    sums.total.scatter_(2, columns, summed.add_(left_out.masked_fill_(missed, 0.0), alpha=ESTIMATE))
    sums.evaluate(missed & (remaining > tolerance * threshold))


def _threshold(summed: Tensor, beam: BeamStatus) -> Tensor:
    """The least that a continuation needs to belong in the beam [A,1,1], by the sums of candidates and end [A,W,C]."""
    sums = summed[..., :-1].flatten(1)
    if sums.shape[1] < beam.places:
        return sums.new_zeros(len(sums), 1, 1)  # room for all
    threshold = sums.topk(beam.places).values[:, -1]
    # where only the end may follow, every hypothesis may belong
    return threshold.masked_fill(beam.only_end, 0.0)[:, None, None]


def _remaining(weights: Tensor) -> Tensor:
    """The sum of this and all later weights: [A,W,K] -> [A,W,K]."""
    return weights.flip(-1).cumsum(-1).flip(-1)


def _per_row(like: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """The sum of values [n,C] over those of each flat row of [A,W]: [A,W,C]."""
    return torch.zeros_like(like).flatten(0, 1).index_add_(0, rows, values).view_as(like)
