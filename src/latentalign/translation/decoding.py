"""The translation model as the search sees it: next-token scores under a predictive distribution.

`Σ_i p_i f_i` costs one product with the vocabulary for every position i. Most of them cannot matter to a
beam: positions are visited from the likeliest on, and a hypothesis gets a further one only while what it has
not seen could change a continuation that may enter the beam by more than `tolerance` nats.
"""

from dataclasses import dataclass
from functools import singledispatch

import torch
from torch import Tensor

from latentalign.alignment.distributions import Categorical, Latent
from latentalign.alignment.likelihood import ContextLikelihood
from latentalign.alignment.prediction import Exact, KMax, Predictor, Sampled, SoftContext
from latentalign.translation.model import Memory, TranslationModel
from latentalign.translation.recurrent import DecoderState
from latentalign.translation.search import Scores, Standing, block_maxima
from latentalign.translation.tokenizer import END, PAD, START

NEVER = [PAD, START]  # what no sentence contains
BLOCK_ELEMENTS = 2**19  # probabilities computed at a time: 2 MB in float32


@dataclass(frozen=True)
class PredictiveDecoder:
    """A `SearchModel`: one step of the decoder and E_p[f(x, z)] by the predictor."""

    model: TranslationModel
    predictor: Predictor
    generator: torch.Generator | None = None
    tolerance: float = 1e-3  # nats a step, at most; 0 visits every position and hypothesis
    start_token: int = START
    end_token: int = END

    def step(
        self, memory: Memory, state: DecoderState, tokens: Tensor, standing: Standing
    ) -> tuple[Scores, DecoderState]:
        """Scores of what follows `tokens` [A,W]; padding and the start mark never do."""
        prior, queries, state = self.model.step(memory, state, tokens)
        likelihood = self.model.likelihood(memory, queries)
        if isinstance(self.predictor, SoftContext):
            context = likelihood.contexts(prior.mean())
            logits = _logits(likelihood, context.flatten(0, 1), queries.flatten(0, 1)).view(*tokens.shape, -1)
            normalizer = logits.logsumexp(-1)
            # after the sum: what never comes keeps its share of the probability
            logits[..., NEVER] = -torch.inf
            return Scores(logits, normalizer), state
        weighted = positions(self.predictor, prior, self.generator)
        if weighted is not None:
            return Scores(self._mixture(likelihood, *weighted, standing)), state
        log_probs = self.predictor.log_probs(prior, likelihood, generator=self.generator)  # [A,W,V]
        log_probs[..., NEVER] = -torch.inf
        return Scores(log_probs, log_probs.new_zeros(tokens.shape)), state

    def _mixture(
        self, likelihood: ContextLikelihood, weights: Tensor, position: Tensor, standing: Standing
    ) -> Tensor:
        """Σ_i p_i f_i [A,W,V] for positions [A,W,K], likeliest first; 0 for tokens that never come."""
        sentences, width, count = weights.shape
        base = torch.arange(sentences, device=weights.device)[:, None, None] * likelihood.values.shape[1]
        place, weights = (base + position).flatten(0, 1), weights.flatten(0, 1)  # [N,K]
        # mass of a position and all later ones
        unseen = weights.flip(-1).cumsum(-1).flip(-1)  # [N,K]
        total = weights.new_zeros(len(weights), likelihood.width)  # [N,V]
        race = _Race(standing, self.end_token, self.tolerance)
        start, stop = 0, 1
        while start < count:  # positions 0, 1, 2-3, 4-7, …: hypotheses drop out in between
            rows, column = race.needing(unseen[:, start:stop]).nonzero(as_tuple=True)
            if len(rows) == 0:
                break  # what is unseen falls from left to right: nobody needs a later one either
            column = column + start
            _add_pairs(total, likelihood, rows, place[rows, column], weights[rows, column])
            start, stop = stop, min(2 * stop, count)
            if start < count:
                race.see(total)
        return total.view(sentences, width, -1)


def _add_pairs(
    total: Tensor, likelihood: ContextLikelihood, rows: Tensor, place: Tensor, weights: Tensor
) -> None:
    """Add w_n f_n to row rows[n] of the total, in blocks that stay in the processor's cache."""
    values, queries = likelihood.values.flatten(0, 1), likelihood.queries.flatten(0, 1)
    size = max(32, BLOCK_ELEMENTS // total.shape[1])
    for block in (slice(at, at + size) for at in range(0, len(rows), size)):
        probs = _logits(
            likelihood, values.index_select(0, place[block]), queries.index_select(0, rows[block])
        )
        probs.sub_(probs.amax(1, keepdim=True)).exp_()
        probs.mul_((weights[block] / probs.sum(1))[:, None])
        total.index_add_(0, rows[block], probs)
    total[:, NEVER] = 0.0


class _Race:
    """Who may still enter the beam, while Σ_i p_i f_i grows position by position.

    With a part of the sum seen of a hypothesis of log-probability a, and mass m unseen, its continuations have
    at most a + log(largest seen + m). The beam's last place goes to at least `bar`, the W-th best seen. A
    continuation that enters has at least probability exp(bar - a): mass below a small share of that cannot be
    noticed.
    """

    def __init__(self, standing: Standing, end_token: int, tolerance: float) -> None:
        self.standing, self.end_token, self.tolerance = standing, end_token, tolerance
        self.alive = standing.alive.flatten()  # [N]
        self.hopeful = self.alive > -torch.inf  # [N]
        self.smallest = torch.zeros_like(self.alive)  # [N] probability of a continuation that may enter
        self.seen: tuple[Tensor, Tensor] | None = None

    def see(self, total: Tensor) -> None:
        """Look at how the sums [N,V] have grown."""
        if self.tolerance <= 0:
            return
        end = total[:, self.end_token].clone()
        total[:, self.end_token] = 0.0  # it takes no place in the beam
        maxima = block_maxima(total)  # [N,C]
        total[:, self.end_token] = end
        bar = self._bar(maxima)
        self.smallest = (bar - self.alive).clamp(max=0.0).exp()
        self.seen = (torch.maximum(maxima.amax(1), end), bar)

    def needing(self, unseen: Tensor) -> Tensor:
        """Which hypotheses need which of the next positions, given the mass from each on: [N,K] bool."""
        if self.seen is not None:
            best, bar = self.seen
            self.hopeful = self.hopeful & (self.alive + (best + unseen[:, 0]).log() > bar)
        return self.hopeful[:, None] & (unseen > self.tolerance * self.smallest[:, None])

    def _bar(self, maxima: Tensor) -> Tensor:
        """The least log-probability that can enter the beam of each hypothesis' sentence: [N]."""
        sentences, width = self.standing.alive.shape
        candidates = (maxima.log() + self.alive[:, None]).view(sentences, -1)
        if candidates.shape[1] < self.standing.places:
            return torch.full_like(self.alive, -torch.inf)  # room for everybody
        bar = candidates.topk(self.standing.places).values[:, -1]
        # where only the end is left, every hypothesis may take a place
        bar = bar.masked_fill(self.standing.last, -torch.inf)
        return bar[:, None].expand(sentences, width).flatten()


def _logits(likelihood: ContextLikelihood, context: Tensor, query: Tensor) -> Tensor:
    logits = likelihood.head(context, query)
    assert isinstance(logits, Tensor)
    return logits


@singledispatch
def positions(
    predictor: Predictor, prior: Latent, generator: torch.Generator | None
) -> tuple[Tensor, Tensor] | None:
    """Weights [A,W,K] and positions [A,W,K], likeliest first, if the predictor mixes single positions."""
    return None


@positions.register
def _(predictor: Exact, prior: Latent, generator: torch.Generator | None) -> tuple[Tensor, Tensor] | None:
    if not isinstance(prior, Categorical):
        return None
    weights, position = prior.probs.sort(dim=-1, descending=True)
    return weights, position


@positions.register
def _(predictor: KMax, prior: Latent, generator: torch.Generator | None) -> tuple[Tensor, Tensor] | None:
    if not isinstance(prior, Categorical):
        return None
    weights, position = prior.probs.topk(min(predictor.k, prior.shape[-1]), dim=-1)
    return weights / weights.sum(-1, keepdim=True), position


@positions.register
def _(predictor: Sampled, prior: Latent, generator: torch.Generator | None) -> tuple[Tensor, Tensor] | None:
    if not isinstance(prior, Categorical):
        return None
    drawn = prior.sample(predictor.n, generator).permute(1, 2, 0)  # [A,W,n]
    share = torch.full_like(drawn, 1.0 / predictor.n, dtype=prior.probs.dtype)
    weights, position = torch.zeros_like(prior.probs).scatter_add_(-1, drawn, share).sort(descending=True)
    return weights[..., : predictor.n], position[..., : predictor.n]
