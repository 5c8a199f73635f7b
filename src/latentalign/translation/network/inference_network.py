"""q(z | x, y): where each target word came from, given the whole target."""

from typing import Any

from torch import Tensor, nn

from latentalign.alignment.latents.latent import Latent
from latentalign.alignment.scores import General, from_prior
from latentalign.translation.config import InferenceNetworkConfig
from latentalign.translation.network.dropout import Dropout
from latentalign.translation.network.latents import build_latent
from latentalign.translation.network.networks import build_encoder


class InferenceNetwork(nn.Module):
    """An encoder over source words, one over target words, and a bilinear score h_jᵀ U x_i.

    It reads the word vectors of the generative model but does not train them, and it shares nothing else. A
    latent context is the exception: its mean is this network's attention over the translator's own values, because
    a vector that f understands has to come from where f learnt to read.

    With `from_prior` its scores are added to the prior's: q ∝ p · exp(score).
    """

    def __init__(
        self,
        embedding_size: int,
        config: InferenceNetworkConfig,
        *,
        alignment: str | dict[str, Any],
        context_size: int,
        dropout: float,
    ) -> None:
        super().__init__()
        drop = dropout if config.dropout is None else config.dropout
        self.source, self.target = (
            build_encoder(
                config.encoder,
                input_size=embedding_size,
                size=config.memory_size,
                layers=config.layers,
                dropout=drop,
            )
            for _ in range(2)
        )
        size = self.source.size
        self.score = General(size, size)
        own = alignment if config.alignment is None else config.alignment
        self.latent = build_latent(own, query_size=size, size=context_size)
        self.dropout = Dropout(drop)
        self.from_prior = config.from_prior

    def forward(
        self,
        source: Tensor,
        source_mask: Tensor,
        target: Tensor,
        target_mask: Tensor,
        *,
        values: Tensor,
        prior_scores: Tensor,
        padded: bool = True,
    ) -> Latent:
        """q from word vectors [B,S,E] and [B,T,E] (step j sees the word it predicts, y_j) and values [B,S,H].

        The prior's scores are [B,T,S]; nothing is learnt through them.
        """
        memory = self.dropout(self.source(self.dropout(source), source_mask, padded=padded))
        queries = self.dropout(self.target(self.dropout(target), target_mask, padded=padded))
        scores = self.score(queries, memory)
        if self.from_prior:
            scores = from_prior(prior_scores, scores)
        posterior: Latent = self.latent(scores, queries, values, source_mask)
        return posterior
