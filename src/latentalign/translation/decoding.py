"""The translation model as the search sees it: next-token scores under a predictive distribution."""

from dataclasses import dataclass
from functools import singledispatch

import torch
from torch import Tensor

from latentalign.alignment.latent import Latent
from latentalign.alignment.likelihood import ContextLikelihood
from latentalign.alignment.prediction import Exact, KMax, Predictor, Sampled, SoftContext
from latentalign.translation.mixture import mix_everywhere, mix_where_needed
from latentalign.translation.model import Memory, TranslationModel
from latentalign.translation.recurrent import DecoderState
from latentalign.translation.search import BeamStatus, Scores
from latentalign.translation.tokenizer import END, NEVER, START


@dataclass(frozen=True)
class PredictiveDecoder:
    """A `SearchModel`: one step of the decoder and E_p[f(x, z)] by the predictor."""

    model: TranslationModel
    predictor: Predictor
    generator: torch.Generator | None = None
    tolerance: float = 2e-3  # nats a step, at most; 0 evaluates every position of every hypothesis
    start_token: int = START
    end_token: int = END

    def step(
        self, memory: Memory, state: DecoderState, tokens: Tensor, beam: BeamStatus
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
            if self.tolerance <= 0:
                return mix_everywhere(likelihood, *weighted, beam), state
            scores = mix_where_needed(
                likelihood, *weighted, beam, end_token=self.end_token, tolerance=self.tolerance
            )
            return scores, state
        log_probs = self.predictor.log_probs(prior, likelihood, generator=self.generator)  # [A,W,V]
        log_probs[..., NEVER] = -torch.inf
        return Scores(log_probs, log_probs.new_zeros(tokens.shape)), state


def _logits(likelihood: ContextLikelihood, context: Tensor, query: Tensor) -> Tensor:
    logits = likelihood.head(context, query)
    assert isinstance(logits, Tensor)
    return logits if logits.dtype == torch.float64 else logits.float()


@singledispatch
def positions(
    predictor: Predictor, prior: Latent, generator: torch.Generator | None
) -> tuple[Tensor, Tensor] | None:
    """Weights [A,W,K] and positions [A,W,K], likeliest first, if the predictor mixes single positions."""
    return None


@positions.register
def _(predictor: Exact, prior: Latent, generator: torch.Generator | None) -> tuple[Tensor, Tensor] | None:
    if not prior.is_discrete:
        return None
    weights, position = prior.mean().sort(dim=-1, descending=True)
    return weights, position


@positions.register
def _(predictor: KMax, prior: Latent, generator: torch.Generator | None) -> tuple[Tensor, Tensor] | None:
    if not prior.is_discrete:
        return None
    weights, position = prior.mean().topk(min(predictor.k, prior.shape[-1]), dim=-1)
    return weights / weights.sum(-1, keepdim=True), position


@positions.register
def _(predictor: Sampled, prior: Latent, generator: torch.Generator | None) -> tuple[Tensor, Tensor] | None:
    if not prior.is_discrete:
        return None
    latent = prior.discrete("inference: sample", instead="use soft")
    drawn = latent.sample(predictor.n, generator).permute(1, 2, 0)  # [A,W,n]
    share = torch.full_like(drawn, 1.0 / predictor.n, dtype=latent.mean().dtype)
    weights, position = torch.zeros_like(latent.mean()).scatter_add_(-1, drawn, share).sort(descending=True)
    return weights[..., : predictor.n], position[..., : predictor.n]
