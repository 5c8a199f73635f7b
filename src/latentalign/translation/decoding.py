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
            context = torch.bmm(prior.mean(), memory.values)
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
        sentences, width, _ = weights.shape
        base = torch.arange(sentences, device=weights.device)[:, None, None] * likelihood.values.shape[1]
        place, weights = (base + position).flatten(0, 1), weights.flatten(0, 1)  # [N,K]
        values, queries = likelihood.values.flatten(0, 1), likelihood.queries.flatten(0, 1)

        def part(rows: Tensor | slice, column: int) -> Tensor:
            logits = _logits(likelihood, values.index_select(0, place[rows, column]), queries[rows])
            return logits.softmax(-1).mul_(weights[rows, column, None])

        total = part(slice(None), 0)  # [N,V]
        total[:, NEVER] = 0.0
        needed = self._needed(total.view(sentences, width, -1), weights, standing)  # [N,K-1]
        for column in range(1, weights.shape[1]):
            rows = needed[:, column - 1].nonzero().squeeze(1)
            if len(rows) == 0:
                break  # weights fall from left to right: nobody needs a later one either
            total.index_add_(0, rows, part(rows, column))
        total[:, NEVER] = 0.0
        return total.view(sentences, width, -1)

    def _needed(self, seen: Tensor, weights: Tensor, standing: Standing) -> Tensor:
        """Which hypotheses need which further positions: [N,K-1].

        With p_1 f_1 seen of a hypothesis of log-probability a, and mass m unseen, its continuations have at
        most a + log(max p_1 f_1 + m). The beam's last place goes to at least `bar`, the W-th best seen.
        """
        # mass of this position and all later ones
        unseen = weights.flip(-1).cumsum(-1).flip(-1)[:, 1:]  # [N,K-1]
        if self.tolerance <= 0 or unseen.shape[1] == 0:
            return unseen > 0
        alive = standing.alive
        end = seen[:, :, self.end_token].clone()
        seen[:, :, self.end_token] = 0.0
        maxima = block_maxima(seen)  # [A,W,C], of continuations only
        seen[:, :, self.end_token] = end
        candidates = (maxima.log() + alive[:, :, None]).flatten(1)
        count = min(standing.places, candidates.shape[1])
        bar = candidates.topk(count).values[:, -1]
        # with fewer candidates than places, or where only the end is left, everything may enter
        bar = bar.masked_fill(standing.last | (count < standing.places), -torch.inf)
        best = torch.maximum(maxima.amax(2), end) + unseen[:, 0].view_as(alive)
        hopeful = (alive + best.log() > bar[:, None]).flatten()
        # a continuation that enters has at least probability exp(bar - a): unseen mass below a small share
        # of it cannot be noticed
        smallest = (bar[:, None] - alive).clamp(max=0.0).exp().flatten()
        return hopeful[:, None] & (unseen > self.tolerance * smallest[:, None])


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
