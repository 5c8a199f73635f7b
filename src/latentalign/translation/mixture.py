"""Σ_i p_i f_i for the hypotheses of a beam, at the price of the few positions that can matter to it.

f costs one product with the vocabulary for every position i. But a beam has few places, and few words can take one. For
those words the f of every position has a ceiling that costs next to nothing (a softmax over them alone). A position is
looked at only where the ceilings allow it to change a continuation that may enter the beam by more than `tolerance`
nats.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from latentalign.alignment.likelihood import ContextLikelihood
from latentalign.alignment.softmax_head import SoftmaxHead
from latentalign.translation.search import Standing
from latentalign.translation.tokenizer import NEVER

BLOCK_ELEMENTS = 2**19  # probabilities computed at a time: 2 MB in float32
CONTENDERS = 24  # words of a sentence that are followed closely
UNKNOWN_SHARE = 0.5  # of its ceiling that a probability is taken for where no other was looked at
AT_ONCE = 0.25  # of the likeliest position's weight: who has as much is looked at without asking


def mix(
    likelihood: ContextLikelihood,
    weights: Tensor,
    positions: Tensor,
    standing: Standing,
    *,
    end_token: int,
    tolerance: float,
) -> Tensor:
    """Σ_i p_i f_i [A,W,V] for weights and positions [A,W,K], likeliest first; 0 for tokens that never come."""
    total = weights.new_zeros(*weights.shape[:2], likelihood.width)
    sums = _Sums(likelihood, positions, weights, weights.clone(), total)
    if tolerance <= 0 or weights.shape[-1] == 1:
        sums.look(weights > 0)
    else:
        sums.look(weights >= AT_ONCE * weights[..., :1])
        _race(sums, standing, end_token, tolerance)
    return total


@dataclass
class _Sums:
    """The sums of one step, as far as they have been looked at."""

    likelihood: ContextLikelihood
    positions: Tensor  # [A,W,K]
    weights: Tensor  # [A,W,K]
    unseen: Tensor  # [A,W,K] the same, 0 where a position has been looked at
    total: Tensor  # [A,W,V]

    def look(self, wanted: Tensor) -> None:
        """Add p_i f_i where wanted [A,W,K], in blocks that stay in the processor's cache."""
        pairs = wanted.flatten().nonzero().squeeze(1)
        if len(pairs) == 0:
            return
        flat = self.total.flatten(0, 1)
        for block in pairs.split(max(32, BLOCK_ELEMENTS // flat.shape[1])):
            rows = block // wanted.shape[-1]
            flat.index_add_(0, rows, self._weighted(rows, block))
        self.total[..., NEVER] = 0.0
        self.unseen.masked_fill_(wanted, 0.0)

    def _weighted(self, rows: Tensor, pairs: Tensor) -> Tensor:
        """p f [n,V] of pairs of the flat [A,W,K], given the flat row [A,W] of each."""
        values, queries = self.likelihood.values, self.likelihood.queries
        place = rows // queries.shape[1] * values.shape[1] + self.positions.flatten()[pairs]
        probs = self.likelihood.head(
            values.flatten(0, 1).index_select(0, place), queries.flatten(0, 1).index_select(0, rows)
        )
        assert isinstance(probs, Tensor)
        probs.sub_(probs.amax(1, keepdim=True)).exp_()
        return probs.mul_((self.weights.flatten()[pairs] / probs.sum(1))[:, None])

    def ceilings(self, columns: slice, words: Tensor) -> Tensor:
        """At least the f of words [A,C] at some columns of the positions: [A,W,k,C]."""
        positions, head = self.positions[..., columns], self.likelihood.head
        if not isinstance(head, SoftmaxHead):
            return self.total.new_ones(*positions.shape, words.shape[1])
        return head.among(self.likelihood.values, self.likelihood.queries, positions, words).exp_()

    def select(self, sentences: Tensor) -> "_Sums":
        """A copy of some sentences."""
        f = self.likelihood
        return _Sums(
            ContextLikelihood(f.head, f.values[sentences], f.queries[sentences], width=f.width),
            self.positions[sentences],
            self.weights[sentences],
            self.unseen[sentences],
            self.total[sentences],
        )


def _race(sums: _Sums, standing: Standing, end_token: int, tolerance: float) -> None:
    """Look wherever it may matter to the beam, and guess what else the words in front would have got."""
    front = _Front.of(sums, standing, end_token)
    wanted, dropped = front.wanted(sums, tolerance)
    sums.look(wanted)

    after = sums.total.gather(2, front.places)
    sums.total.scatter_(2, front.places, 0.0)
    other = sums.total.amax(-1)  # [A,W] of the words that were not followed
    left = sums.unseen.sum(-1)  # [A,W]
    bar = _bar(after * front.scale, standing)[:, None] / front.scale[..., 0]  # [A,W]
    surprised = ((other + left > bar) & (left > tolerance * bar) & wanted.any(-1)).any(1)  # [A]
    # the share of its ceilings that a sentence got where it was looked at
    share = (after - front.before).sum((1, 2)) / (sums.weights * wanted).sum((1, 2))
    share = share.nan_to_num(UNKNOWN_SHARE).masked_fill(surprised, 0.0)
    sums.total.scatter_(2, front.places, after + dropped * share[:, None, None])
    if bool(surprised.any()):  # a word that was not followed may enter: once more where that is so
        again = surprised.nonzero().squeeze(1)
        some = sums.select(again)
        _race(some, standing.select(again), end_token, tolerance)
        sums.total[again] = some.total


@dataclass(frozen=True)
class _Front:
    """The words that may enter the beam, as far as the sums have been seen.

    Probabilities are compared as those of whole hypotheses, over that of their sentence's best. What is seen of them
    only grows, so whatever is W-th best of a sentence now is a bar for everything that enters its beam in the end.
    """

    scale: Tensor  # [A,W,1] probability of every hypothesis
    words: Tensor  # [A,C] the words that are followed, the end last
    before: Tensor  # [A,W,C] what is seen of them, given the hypothesis
    bar: Tensor  # [A,1,1]
    others: Tensor  # [A,1,1] what is seen of any other word, at most

    @classmethod
    def of(cls, sums: _Sums, standing: Standing, end_token: int) -> "_Front":
        scale = (standing.alive - standing.alive.amax(1, keepdim=True)).exp()[..., None]
        best = (sums.total * scale).amax(1)  # [A,V]
        best[:, end_token] = 0.0  # it takes no place in the beam
        top, words = best.topk(min(CONTENDERS, best.shape[1]))
        words = torch.cat([words, torch.full_like(words[:, :1], end_token)], dim=1)
        before = sums.total.gather(2, words[:, None].expand(-1, scale.shape[1], -1))
        bar = _bar(before * scale, standing)
        return cls(scale, words, before, bar[:, None, None], top[:, -1, None, None])

    @property
    def places(self) -> Tensor:
        """[A,W,C] where the words are in the sums."""
        return self.words[:, None].expand_as(self.before)

    def wanted(self, sums: _Sums, tolerance: float) -> tuple[Tensor, Tensor]:
        """Which positions have to be looked at [A,W,K], and what the others give the words at most [A,W,C]."""
        seen, unseen = self.before * self.scale, sums.unseen * self.scale
        wanted = torch.zeros_like(unseen, dtype=torch.bool)
        # weights fall from left to right: nobody asks for the last, as long as they take half of the tolerance at most
        asked = unseen.flip(-1).cumsum(-1).flip(-1) > tolerance / 2 * self.bar
        near = slice(1, int(asked.sum(-1).max()))
        if near.stop <= 1:
            return wanted, torch.zeros_like(seen)
        rest = (unseen * ~asked).sum(-1, keepdim=True)  # [A,W,1]
        unseen = (unseen * asked)[..., near]

        most = sums.ceilings(near, self.words)  # [A,W,k,C]
        most.mul_((sums.unseen * asked)[..., near, None])
        may_enter = seen + most.sum(2) * self.scale > self.bar  # [A,W,C]
        weight = self.scale * may_enter / torch.maximum(seen, self.bar).clamp_min(1e-30)
        change = (most * weight[:, :, None]).amax(-1)  # [A,W,k] by each position, in nats
        change, order = change.sort(dim=-1)
        small = change.cumsum(-1) + rest / self.bar <= tolerance
        dropped = torch.zeros_like(small).scatter_(-1, order, small)
        # nor may a word that is not followed enter by what is dropped
        lost = (unseen * dropped).flip(-1).cumsum(-1).flip(-1) + rest
        dropped &= lost <= torch.maximum(self.bar - self.others, tolerance * self.bar)
        wanted[..., near] = ~dropped & (unseen > 0)
        return wanted, (most * dropped[..., None]).sum(2)


def _bar(seen: Tensor, standing: Standing) -> Tensor:
    """What a continuation needs at least to enter the beam, given what is seen of the best and the end [A,W,C]: [A]."""
    candidates = seen[..., :-1].flatten(1)
    if candidates.shape[1] < standing.places:
        return candidates.new_zeros(len(candidates))  # room for everybody
    bar = candidates.topk(standing.places).values[:, -1]
    # where only the end is left, every hypothesis may take a place
    return bar.masked_fill(standing.last, 0.0)
