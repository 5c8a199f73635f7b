"""The translation model as the search sees it: next-token scores under a predictive distribution."""

from dataclasses import dataclass

import torch
from torch import Tensor

from latentalign.alignment.latents.latent import Latent
from latentalign.alignment.likelihoods.likelihood import ContextLikelihood
from latentalign.alignment.prediction import Predictor
from latentalign.translation.beam.belief import Filter, Unobserved
from latentalign.translation.beam.position_pruning import PositionSums, sum_everywhere, sum_where_needed
from latentalign.translation.beam.search import BeamStatus, Scores
from latentalign.translation.data.tokenizer import END, NEVER, START
from latentalign.translation.network.encoder_decoder import DecoderState, Memory
from latentalign.translation.network.model import TranslationModel


@dataclass(frozen=True)
class SearchState:
    """Where hypotheses are: the decoder's state, and that of an alignment that remembers; N rows."""

    decoder: DecoderState
    # None before the first word, and where steps are independent
    alignment: Filter | Unobserved | None = None

    def select(self, index: Tensor) -> "SearchState":
        """The rows at `index`, in that order."""
        alignment = None if self.alignment is None else self.alignment.select(index)
        return SearchState(self.decoder.select(index), alignment)


@dataclass(frozen=True)
class PredictiveDecoder:
    """A `SearchModel`: one step of the decoder and E_p[f(x, z)] by the predictor."""

    model: TranslationModel
    predictor: Predictor
    generator: torch.Generator | None = None
    tolerance: float = 2e-3  # nats a step, at most; 0 evaluates every position of every hypothesis
    start_token: int = START
    end_token: int = END

    def encode(self, source: Tensor, source_mask: Tensor) -> Memory:
        """The source as the model remembers it."""
        return self.model.encode(source, source_mask)

    def start(self, memory: Memory) -> SearchState:
        """Before the first word, a row for each sentence."""
        return SearchState(memory.start)

    def step(
        self, memory: Memory, state: SearchState, tokens: Tensor, beam: BeamStatus
    ) -> tuple[Scores, SearchState]:
        """Scores of what follows `tokens` [A,W]; padding and the start mark never do."""
        prior, queries, decoder = self.read(memory, state, tokens)
        likelihood = self.model.likelihood(memory, queries)
        shares = self._shares(prior, likelihood)
        if shares is None:
            unobserved = Unobserved(prior.mean().flatten(0, 1)) if self.model.remembers else None
            return self._predict(prior, likelihood), SearchState(decoder, unobserved)
        weights, positions = shares.sort(dim=-1, descending=True)
        most = int((shares > 0).sum(-1).max())
        weights, positions = weights[..., :most], positions[..., :most]
        sums = self._sum(likelihood, weights, positions, beam)
        if sums.log_normalizers is None:
            return sums.scores, SearchState(decoder)
        fields = (weights, positions, sums.log_normalizers, queries)
        return sums.scores, SearchState(decoder, Filter(*(field.flatten(0, 1) for field in fields)))

    def read(self, memory: Memory, state: SearchState, tokens: Tensor) -> tuple[Latent, Tensor, DecoderState]:
        """Read `tokens` [A,W]: the distribution of the next alignment, the query and the decoder's state."""
        belief = None
        if state.alignment is not None:
            belief = state.alignment.after(tokens, memory.values, self.model.head)
        return self.model.step(memory, state.decoder, tokens, belief=belief)

    def _shares(self, prior: Latent, likelihood: ContextLikelihood) -> Tensor | None:
        """Which positions are averaged over, [A,W,S], in single precision at least; None if none are."""
        if not prior.is_discrete:
            return None
        discrete = prior.discrete("inference", instead="use sample:N or soft")
        shares = self.predictor.shares(discrete, likelihood, generator=self.generator)
        return shares if shares is None or shares.dtype == torch.float64 else shares.float()

    def _sum(
        self, likelihood: ContextLikelihood, weights: Tensor, positions: Tensor, beam: BeamStatus
    ) -> PositionSums:
        normalizers = self.model.remembers
        if self.tolerance <= 0:
            return sum_everywhere(likelihood, weights, positions, beam, normalizers=normalizers)
        return sum_where_needed(
            likelihood,
            weights,
            positions,
            beam,
            end_token=self.end_token,
            tolerance=self.tolerance,
            normalizers=normalizers,
        )

    def _predict(self, prior: Latent, likelihood: ContextLikelihood) -> Scores:
        """By the predictor itself: soft attention, or samples of a continuous latent."""
        log_probs = self.predictor.log_probs(prior, likelihood, generator=self.generator)  # [A,W,V]
        log_probs = log_probs if log_probs.dtype == torch.float64 else log_probs.float()
        for token in NEVER:
            log_probs[..., token] = -torch.inf
        return Scores(log_probs, log_probs.new_zeros(log_probs.shape[:2]))
