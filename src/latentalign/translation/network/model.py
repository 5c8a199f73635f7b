"""The paper's translation model, f = softmax(W tanh(A x_i + B x̃)), over any encoder's memory and decoder's queries."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from latentalign.alignment.latents.categorical import external_posterior
from latentalign.alignment.latents.latent import Latent
from latentalign.alignment.learning.problem import AlignmentProblem
from latentalign.alignment.likelihoods.likelihood import ContextLikelihood
from latentalign.alignment.likelihoods.softmax_head import SoftmaxHead
from latentalign.alignment.registry import build_score
from latentalign.errors import UserError
from latentalign.translation.config import ModelConfig
from latentalign.translation.data.dataset import PairBatch
from latentalign.translation.network.dropout import Dropout
from latentalign.translation.network.encoder_decoder import DecoderState, Memory
from latentalign.translation.network.inference_network import InferenceNetwork
from latentalign.translation.network.input_feeding import FedDecoder
from latentalign.translation.network.latents import build_latent
from latentalign.translation.network.networks import (
    build_bridge,
    build_decoder,
    build_embedding,
    build_encoder,
)
from latentalign.translation.network.recurrent import LstmDecoder, LstmState


class TranslationModel(nn.Module):
    """p(y | x) with a latent alignment at every target step, and q(z | x, y) where training needs it."""

    def __init__(
        self, config: ModelConfig, *, source_size: int, target_size: int, needs_posterior: bool
    ) -> None:
        super().__init__()
        self.config = config
        embedding, memory, decoder = config.embedding_size, config.state_size, config.query_size
        hidden = config.hidden_size or decoder
        self.source_embedding = build_embedding(source_size, embedding, config.encoder)
        self.target_embedding = build_embedding(target_size, embedding, config.decoder)
        self.encoder = build_encoder(
            config.encoder,
            input_size=embedding,
            size=config.memory_size,
            layers=config.encoder_layers,
            dropout=config.dropout,
        )
        self.bridge = build_bridge(config)  # apart from the decoder, as weights of earlier runs name it
        self.decoder = build_decoder(config)
        self.score = build_score(config.score, decoder, memory, config.attention_size)
        self.context = nn.Linear(memory, hidden, bias=False)  # A
        self.query = nn.Linear(decoder, hidden)  # B
        self.output = nn.Linear(hidden, target_size)  # W
        if config.shared_embeddings:
            self.output.weight = self.target_embedding.weight
        self.dropout = Dropout(config.dropout)
        self.memory_dropout = Dropout(config.memory_dropout)
        self.latent = build_latent(config.alignment, query_size=decoder, size=hidden)
        self.inference_network = (
            InferenceNetwork(
                embedding,
                config.inference_network,
                alignment=config.alignment,
                context_size=hidden,
                dropout=config.dropout,
            )
            if needs_posterior and config.external_posterior is None
            else None
        )
        if config.uniform_init is not None:
            norms = {
                id(p) for part in self.modules() if isinstance(part, nn.LayerNorm) for p in part.parameters()
            }
            for parameter in self.parameters():
                if id(parameter) not in norms:
                    nn.init.uniform_(parameter, -config.uniform_init, config.uniform_init)

    # --- one source, one step: what decoding needs ---

    def encode(self, source: Tensor, source_mask: Tensor) -> Memory:
        """Read sources [B,S]; the mask is True at real pieces, padding comes last."""
        padded = not bool(source_mask.all())
        embedded = self.dropout(self.source_embedding(source))
        states = self.encoder(embedded, source_mask, padded=padded)  # [B,S,M]
        bridged = None if self.bridge is None else self.bridge(self.encoder.summary(states, source_mask))
        start = self.decoder.start(states, bridged)
        states = self.memory_dropout(states)
        keys, values = self.score.project_memory(states), self.context(states)
        return Memory(states, keys, values, source_mask, start, self.decoder.project_source(states))

    @property
    def remembers(self) -> bool:
        """Whether the alignment of a step depends on that of the step before."""
        return self.latent.remembers

    @property
    def head(self) -> SoftmaxHead:
        """f without its contexts and queries."""
        return SoftmaxHead(self.output)

    def step(
        self, memory: Memory, state: DecoderState, tokens: Tensor, *, belief: Tensor | None = None
    ) -> tuple[Latent, Tensor, DecoderState]:
        """Read one word: the prior of the latent and the projected query of what comes next.

        Tokens [B] give a prior over [B,1,S] and queries [B,1,H]. Tokens [B,W] are W hypotheses for each
        sentence, which share its memory: state rows are B·W, sentence by sentence, and the prior is [B,W,S].
        The prior of a latent context is [B,1,H] or [B,W,H]. An alignment that remembers needs `belief` [B,W,S], the
        log-probability of where each hypothesis was in the step before given all of its words; none at the first word.
        """
        if tokens.dim() == 1:
            tokens = tokens[:, None]
        inputs = self.dropout(self.target_embedding(tokens))  # [B,W,E]
        queries, state = self.decoder.one_step(inputs, memory, state)
        queries = self.dropout(queries)  # [B,W,D]
        scores = self.score.from_keys(queries, memory.keys)
        prior = self.latent.step(scores, queries, memory.values, memory.mask, belief)
        if self.decoder.feeds:
            context = torch.bmm(self.latent.attention(scores, memory.mask), memory.states).flatten(0, 1)
            state = self.decoder.feed(state, context)
        return prior, self.query(queries), state

    def likelihood(self, memory: Memory, queries: Tensor, targets: Tensor | None = None) -> ContextLikelihood:
        """f for projected queries [B,T,H] as `step` gives them."""
        width = self.output.out_features
        return self.latent.likelihood(self.head, memory.values, queries, targets, width=width)

    def example_prior(self) -> Latent:
        """A prior over one position, to see what kind it is."""
        return self.latent.example()

    # --- whole batches: what training needs ---

    def problem(self, batch: PairBatch, *, with_posterior: bool = False) -> AlignmentProblem:
        """Prior, likelihood and (where asked) posterior of every target position of a batch."""
        memory = self.encode(batch.source, batch.source_mask)
        outputs, scores = self._read_targets(memory, batch.target_input)
        return AlignmentProblem(
            prior=self.latent(scores, outputs, memory.values, memory.mask),
            likelihood=self.likelihood(memory, self.query(outputs), batch.target),
            posterior=self.posterior(batch, memory, scores) if with_posterior else None,
            weights=batch.target_mask,
        )

    def _read_targets(self, memory: Memory, words: Tensor) -> tuple[Tensor, Tensor]:
        """Decoder outputs [B,T,D] and alignment scores [B,T,S] with the true words [B,T] read in."""
        embedded = self.dropout(self.target_embedding(words))
        if not self.decoder.feeds:
            outputs = self.dropout(self.decoder.all_steps(embedded, memory))
            return outputs, self.score.from_keys(outputs, memory.keys)
        assert isinstance(self.decoder, LstmDecoder)
        assert isinstance(memory.start, LstmState)
        decoder, feed = FedDecoder(self.decoder, embedded, memory.start), memory.start.feed
        assert feed is not None
        outputs, scores = [], []
        for _ in range(words.shape[1]):
            outputs.append(self.dropout(decoder.step(feed))[:, None])  # [B,1,D]
            scores.append(self.score.from_keys(outputs[-1], memory.keys))  # [B,1,S]
            feed = torch.bmm(self.latent.attention(scores[-1], memory.mask), memory.states).squeeze(1)
        return torch.cat(outputs, dim=1), torch.cat(scores, dim=1)

    def posterior(self, batch: PairBatch, memory: Memory, prior_scores: Tensor) -> Latent | None:
        """q(z | x, y) over [B,T,S] by the inference network; a latent context is one of the memory's values.

        An external posterior comes with the batch instead; pairs without links have none.
        """
        if self.config.external_posterior is not None:
            if batch.links is None:
                return None
            smoothing = self.config.external_posterior.smoothing
            return external_posterior(batch.links, batch.source_mask, smoothing=smoothing)
        if self.inference_network is None:
            raise UserError(
                "model: it has no inference network; train with an objective that uses a posterior"
            )
        # the network reads the word vectors without training them: θ learns from the generative model alone
        source = F.embedding(batch.source, self.source_embedding.weight.detach())
        target = F.embedding(batch.target, self.target_embedding.weight.detach())
        return self.inference_network(
            source,
            batch.source_mask,
            target,
            batch.target_mask,
            values=memory.values,
            prior_scores=prior_scores,
        )

    def theta(self) -> list[nn.Parameter]:
        """Parameters of the generative model."""
        inference = {id(parameter) for parameter in self.phi()}
        return [parameter for parameter in self.parameters() if id(parameter) not in inference]

    def phi(self) -> list[nn.Parameter]:
        """Parameters of the inference network."""
        return [] if self.inference_network is None else list(self.inference_network.parameters())

    def measures(
        self, batch: PairBatch, problem: AlignmentProblem, predictor: object, *, generator: object = None
    ) -> dict[str, tuple[float, float]]:
        """Nothing beyond what every task reports."""
        return {}
