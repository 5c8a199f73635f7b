"""Σ_i p_i f_i for the hypotheses of a beam, at the price of the few positions that can matter to it.

f costs one product with the vocabulary for every position i. But a beam has few places, and few words can take one. For
those words the f of every position has a ceiling that costs next to nothing (a softmax over them alone). A position is
looked at only where the ceilings allow it to change a continuation that may enter the beam by more than `tolerance`
nats.

All probabilities here are those of whole hypotheses, over that of their sentence's best: p_i is multiplied by it first.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from latentalign.alignment.likelihood import ContextLikelihood
from latentalign.alignment.softmax_head import SoftmaxHead, blocks
from latentalign.translation.search import Scores, Standing
from latentalign.translation.tokenizer import NEVER

CONTENDERS = 24  # words of a sentence that are followed closely
GUESS = 0.5  # of its ceiling that a probability is taken for: then it is wrong by half of the ceiling at most
AT_ONCE = 0.25  # of the likeliest position's weight: who has as much is looked at without asking
ALIKE = 32  # sentences whose ceilings are computed together
# nats: a hypothesis further behind counts as no further, since probabilities must not vanish
FAR_BEHIND = -60.0


def mix(
    likelihood: ContextLikelihood,
    weights: Tensor,
    positions: Tensor,
    standing: Standing,
    *,
    end_token: int,
    tolerance: float,
) -> Scores:
    """Σ_i p_i f_i for weights and positions [A,W,K], likeliest first; 0 for tokens that never come."""
    behind = (standing.alive - standing.alive.amax(1, keepdim=True)).clamp_min(FAR_BEHIND)  # [A,W]
    sums = _Sums.start(likelihood, weights * behind.exp()[..., None], positions)
    if tolerance <= 0:
        sums.look(sums.unseen > 0)
    elif weights.shape[-1] > 1:
        sums.look(sums.unseen >= AT_ONCE * sums.weights[..., :1])
        _race(sums, standing, end_token, tolerance)
    return Scores(sums.total, behind, probabilities=True)


@dataclass
class _Sums:
    """The sums of one step, as far as they have been looked at."""

    likelihood: ContextLikelihood
    positions: Tensor  # [A,W,K]
    weights: Tensor  # [A,W,K]
    unseen: Tensor  # [A,W,K] the same, 0 where a position has been looked at
    total: Tensor  # [A,W,V]

    @classmethod
    def start(cls, likelihood: ContextLikelihood, weights: Tensor, positions: Tensor) -> "_Sums":
        """The likeliest position of every hypothesis."""
        total = weights.new_empty(*weights.shape[:2], likelihood.width)
        sums = cls(likelihood, positions, weights, weights.clone(), total)
        sums.unseen[..., 0] = 0.0
        flat = total.flatten(0, 1)
        rows = torch.arange(len(flat), device=weights.device)
        for block in blocks(*flat.shape):
            sums._weighted(rows[block], rows[block] * weights.shape[2], out=flat[block])
        total[..., NEVER] = 0.0
        return sums

    def look(self, wanted: Tensor) -> None:
        """Add p_i f_i where wanted [A,W,K], unless that has been done."""
        wanted = wanted & (self.unseen > 0)
        pairs = wanted.flatten().nonzero().squeeze(1)
        if len(pairs) == 0:
            return
        flat = self.total.flatten(0, 1)
        for block in blocks(len(pairs), flat.shape[1]):
            rows = pairs[block] // wanted.shape[-1]
            flat.index_add_(0, rows, self._weighted(rows, pairs[block]))
        self.total[..., NEVER] = 0.0
        self.unseen.masked_fill_(wanted, 0.0)

    def _weighted(self, rows: Tensor, pairs: Tensor, out: Tensor | None = None) -> Tensor:
        """p f [n,V] of pairs of the flat [A,W,K], given the flat row [A,W] of each."""
        values, queries = self.likelihood.values, self.likelihood.queries
        place = rows // queries.shape[1] * values.shape[1] + self.positions.flatten()[pairs]
        logits = self.likelihood.head(
            values.flatten(0, 1).index_select(0, place), queries.flatten(0, 1).index_select(0, rows)
        )
        assert isinstance(logits, Tensor)
        probs = torch.softmax(logits, dim=1, out=logits if out is None else out)
        return probs.mul_(self.weights.flatten()[pairs][:, None])

    def ceilings(self, pairs: Tensor, words: Tensor) -> Tensor:
        """At least the f of words [A,C] of their sentences at pairs [n] of the flat [A,W,K], in their order: [n,C]."""
        f = self.likelihood
        if not isinstance(f.head, SoftmaxHead):
            return self.total.new_ones(len(pairs), words.shape[1])
        each = self.weights[0].numel()
        counts = torch.bincount(pairs // each, minlength=len(words))
        before = counts.cumsum(0) - counts
        counts, order = counts.sort()
        found = self.total.new_empty(len(pairs), words.shape[1])
        # sentences of about as many pairs together; who has less than the others repeats its last
        for count, some in zip(counts.split(ALIKE), order.split(ALIKE), strict=True):
            if not bool(count[-1]):
                continue
            count, some = count[count > 0], some[count > 0]
            last = (count - 1)[:, None]
            index = before[some, None] + torch.arange(int(count[-1]), device=last.device).minimum(last)
            chosen = pairs[index]
            rows = self.positions.flatten()[chosen], chosen % each // self.weights.shape[2]
            found[index] = f.head.among(f.values[some], f.queries[some], rows, words[some])
        return found.exp_()


def _race(sums: _Sums, standing: Standing, end_token: int, tolerance: float) -> None:
    """Look wherever it may matter to the beam, and guess what else the words in front would have got."""
    front = _Front.of(sums, standing, end_token)
    wanted, dropped = front.wanted(sums, tolerance)
    sums.look(wanted)

    after = sums.total.gather(2, front.places)
    sums.total.scatter_(2, front.places, 0.0)
    other = sums.total.amax(-1, keepdim=True)  # [A,W,1] of the words that were not followed
    left = _remaining(sums.unseen)  # [A,W,K]
    bar = _bar(after, standing)  # [A,1,1]
    # a word that was not followed may enter: look wherever that may be
    surprised = wanted.any(-1, keepdim=True) & (other + left[..., :1] > bar)  # [A,W,1]
    sums.total.scatter_(2, front.places, after.add_(dropped.masked_fill_(surprised, 0.0), alpha=GUESS))
    sums.look(surprised & (left > tolerance * bar))


@dataclass(frozen=True)
class _Front:
    """The words that may enter the beam, as far as the sums have been seen.

    What is seen of them only grows, so whatever is W-th best of a sentence now is a bar for everything that enters its
    beam in the end.
    """

    best: Tensor  # [A,W,1] what is seen of a hypothesis' best word
    words: Tensor  # [A,C] the words that are followed, the end last
    before: Tensor  # [A,W,C] what is seen of them
    bar: Tensor  # [A,1,1]
    others: Tensor  # [A,1,1] what is seen of any other word, at most

    @classmethod
    def of(cls, sums: _Sums, standing: Standing, end_token: int) -> "_Front":
        best, of_word = sums.total.amax(-1, keepdim=True), sums.total.amax(1)  # [A,W,1], [A,V]
        of_word[:, end_token] = 0.0  # it takes no place in the beam
        top, words = of_word.topk(min(CONTENDERS, of_word.shape[1]))
        words = torch.cat([words, torch.full_like(words[:, :1], end_token)], dim=1)
        before = sums.total.gather(2, words[:, None].expand(-1, best.shape[1], -1))
        return cls(best, words, before, _bar(before, standing), top[:, -1, None, None])

    @property
    def places(self) -> Tensor:
        """[A,W,C] where the words are in the sums."""
        return self.words[:, None].expand_as(self.before)

    def wanted(self, sums: _Sums, tolerance: float) -> tuple[Tensor, Tensor]:
        """Which positions have to be looked at [A,W,K], and what the others give the words at most [A,W,C]."""
        seen, unseen = self.before, sums.unseen
        # weights fall from left to right: nobody asks for the last, as long as they take half of the tolerance at most,
        # nor for any of a hypothesis that cannot enter with all of them
        left = _remaining(unseen)
        asked = (left > tolerance / 2 * self.bar) & (self.best + left[..., :1] > self.bar) & (unseen > 0)
        rest = unseen.masked_fill(asked, 0.0).sum(-1, keepdim=True)  # [A,W,1]
        pairs = asked.flatten().nonzero().squeeze(1)  # [n]
        rows = pairs // asked.shape[-1]

        most = sums.ceilings(pairs, self.words).mul_(unseen.flatten()[pairs, None])  # [n,C]
        needed = torch.maximum(seen, self.bar).clamp_min(torch.finfo(seen.dtype).tiny)
        # of what would enter only
        weight = needed.reciprocal_().masked_fill_(seen + _per_row(seen, rows, most) <= self.bar, 0.0)
        change = torch.zeros_like(unseen)  # [A,W,K] by each position, in nats
        change.view(-1)[pairs] = (most * weight.flatten(0, 1)[rows]).amax(-1)
        change, order = change.sort(dim=-1)
        small = (1 - GUESS) * change.cumsum(-1) + rest / self.bar <= tolerance
        dropped = asked & torch.zeros_like(small).scatter_(-1, order, small)
        # nor may a word that is not followed enter by what is dropped
        lost = _remaining(unseen.masked_fill(~dropped, 0.0)) + rest
        dropped &= lost <= torch.maximum(self.bar - self.others, tolerance * self.bar)
        guessed = dropped.flatten()[pairs].nonzero().squeeze(1)
        return asked & ~dropped, _per_row(seen, rows[guessed], most[guessed])


def _bar(seen: Tensor, standing: Standing) -> Tensor:
    """What a continuation needs to enter the beam at least [A,1,1], by what is seen of the best and the end [A,W,C]."""
    candidates = seen[..., :-1].flatten(1)
    if candidates.shape[1] < standing.places:
        return candidates.new_zeros(len(candidates), 1, 1)  # room for everybody
    bar = candidates.topk(standing.places).values[:, -1]
    # where only the end is left, every hypothesis may take a place
    return bar.masked_fill(standing.last, 0.0)[:, None, None]


def _remaining(weights: Tensor) -> Tensor:
    """The sum of this and all later weights: [A,W,K] -> [A,W,K]."""
    return weights.flip(-1).cumsum(-1).flip(-1)


def _per_row(like: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """The sum of values [n,C] over those of each flat row of [A,W]: [A,W,C]."""
    return torch.zeros_like(like).flatten(0, 1).index_add_(0, rows, values).view_as(like)
