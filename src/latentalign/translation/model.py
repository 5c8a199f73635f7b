"""The paper's translation model: bi-LSTM memory, LSTM queries, f = softmax(W tanh(A x_i + B x̃))."""

from dataclasses import dataclass

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
from latentalign.translation.dataset import PairBatch
from latentalign.translation.dropout import Dropout
from latentalign.translation.inference_network import InferenceNetwork
from latentalign.translation.input_feeding import FedDecoder
from latentalign.translation.latents import build_latent
from latentalign.translation.recurrent import BidirectionalLstm, Decoder, DecoderState, final_states
from latentalign.translation.tokenizer import PAD


@dataclass(frozen=True)
class Memory:
    """A source as the decoder sees it: everything that is computed once a sentence."""

    states: Tensor  # [B,S,M]
    keys: Tensor  # [B,S,·] for the scores
    values: Tensor  # [B,S,H] A x, for the likelihood
    mask: Tensor  # [B,S]
    start: DecoderState  # before the first word, B rows

    def select(self, index: Tensor) -> "Memory":
        """The sentences at `index`, in that order."""
        return Memory(
            self.states.index_select(0, index),
            self.keys.index_select(0, index),
            self.values.index_select(0, index),
            self.mask.index_select(0, index),
            self.start.select(index),
        )


class TranslationModel(nn.Module):
    """p(y | x) with a latent alignment at every target step, and q(z | x, y) where training needs it."""

    def __init__(
        self, config: ModelConfig, *, source_size: int, target_size: int, needs_posterior: bool
    ) -> None:
        super().__init__()
        self.config = config
        embedding, memory, decoder = config.embedding_size, config.memory_size, config.decoder_size
        hidden = config.hidden_size or decoder
        self.source_embedding = nn.Embedding(source_size, embedding, padding_idx=PAD)
        self.target_embedding = nn.Embedding(target_size, embedding, padding_idx=PAD)
        self.encoder = BidirectionalLstm(
            embedding, memory, layers=config.encoder_layers, dropout=config.dropout
        )
        self.bridge = (
            nn.Linear(memory, 2 * config.decoder_layers * decoder)
            if config.initial_state == "encoder"
            else None
        )
        self.decoder = Decoder(
            embedding,
            decoder,
            feed_size=memory if config.input_feeding else 0,
            layers=config.decoder_layers,
            dropout=config.dropout,
        )
        self.score = build_score(config.score, decoder, memory, config.attention_size)
        self.context = nn.Linear(memory, hidden, bias=False)  # A
        self.query = nn.Linear(decoder, hidden)  # B
        self.output = nn.Linear(hidden, target_size)  # W
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
            for parameter in self.parameters():
                nn.init.uniform_(parameter, -config.uniform_init, config.uniform_init)

    # --- one source, one step: what decoding needs ---

    def encode(self, source: Tensor, source_mask: Tensor) -> Memory:
        """Read sources [B,S]; the mask is True at real pieces, padding comes last."""
        padded = not bool(source_mask.all())
        embedded = self.dropout(self.source_embedding(source))
        states = self.encoder(embedded, source_mask, padded=padded)  # [B,S,M]
        start = self._initial_state(states, source_mask)
        states = self.memory_dropout(states)
        return Memory(states, self.score.project_memory(states), self.context(states), source_mask, start)

    def _initial_state(self, states: Tensor, mask: Tensor) -> DecoderState:
        layers, size = self.config.decoder_layers, self.config.decoder_size
        batch = states.shape[0]
        feed = states.new_zeros(batch, states.shape[2]) if self.config.input_feeding else None
        if self.bridge is None:
            zeros = states.new_zeros(layers, batch, size)
            return DecoderState(zeros, zeros, feed)
        bridged = self.bridge(final_states(states, mask)).view(batch, 2 * layers, size).transpose(0, 1)
        return DecoderState(torch.tanh(bridged[:layers]), bridged[layers:].contiguous(), feed)

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
        inputs = self.dropout(self.target_embedding(tokens.reshape(-1)))  # [N,E]
        if state.feed is not None:
            inputs = torch.cat([inputs, state.feed], dim=-1)
        output, hidden, cell = self.decoder.one_step(inputs, state)
        queries = self.dropout(output).view(*tokens.shape, -1)  # [B,W,D]
        scores = self.score.from_keys(queries, memory.keys)
        prior = self.latent.step(scores, queries, memory.values, memory.mask, belief)
        feed = None
        if state.feed is not None:
            feed = torch.bmm(self.latent.attention(scores, memory.mask), memory.states).flatten(0, 1)
        return prior, self.query(queries), DecoderState(hidden, cell, feed)

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
        if not self.config.input_feeding:
            outputs = self.dropout(self.decoder.all_steps(embedded, memory.start))
            return outputs, self.score.from_keys(outputs, memory.keys)
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
            prior_scores=prior_scores.detach(),
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
