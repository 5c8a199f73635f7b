"""The translation model as the search sees it: next-token scores under a predictive distribution."""

from dataclasses import dataclass

import torch
from torch import Tensor

from latentalign.alignment.prediction import Predictor
from latentalign.translation.model import Memory, TranslationModel
from latentalign.translation.recurrent import DecoderState
from latentalign.translation.search import Scores
from latentalign.translation.tokenizer import END, PAD, START


@dataclass(frozen=True)
class PredictiveDecoder:
    """A `SearchModel`: one step of the decoder and E_p[f(x, z)] by the predictor."""

    model: TranslationModel
    predictor: Predictor
    generator: torch.Generator | None = None
    start_token: int = START
    end_token: int = END

    def step(self, memory: Memory, state: DecoderState, tokens: Tensor) -> tuple[Scores, DecoderState]:
        """Scores of what follows `tokens` [A,W]; padding and the start mark never do."""
        prior, queries, state = self.model.step(memory, state, tokens)
        likelihood = self.model.likelihood(memory, queries)
        log_probs = self.predictor.log_probs(prior, likelihood, generator=self.generator)  # [A,W,V]
        log_probs[..., [PAD, START]] = -torch.inf
        return Scores(log_probs, log_probs.new_zeros(tokens.shape)), state
