"""A question chooses a region, the region answers it; and the inference network that knows the answer."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from latentalign.alignment.latents.categorical import Categorical
from latentalign.alignment.learning.problem import AlignmentProblem
from latentalign.alignment.likelihoods.likelihood import ContextLikelihood
from latentalign.alignment.prediction import Predictor
from latentalign.alignment.scores import Additive, from_prior
from latentalign.vqa.config import VqaModelConfig
from latentalign.vqa.dataset import VqaBatch
from latentalign.vqa.measures import measure_batch
from latentalign.vqa.vocabulary import PADDING


class VqaInferenceNetwork(nn.Module):
    """q_i ∝ exp(uᵀ tanh(U₁(x_i ⊙ ReLU(V₁ h_y)) + U₂(x̃ ⊙ ReLU(V₂ h_y)))).

    h_y is an embedding of the answer; the whole network is unused at test time.
    """

    def __init__(self, config: VqaModelConfig, *, answers: int, region_dim: int) -> None:
        super().__init__()
        hidden, answer_dim = config.posterior_hidden_dim, config.posterior_answer_dim
        self.answer = nn.Embedding(answers, answer_dim)  # h_y
        self.region_gate = nn.Linear(answer_dim, region_dim)  # V₁
        self.question_gate = nn.Linear(answer_dim, config.question_dim)  # V₂
        self.region = nn.Linear(region_dim, hidden, bias=False)  # U₁
        self.question = nn.Linear(config.question_dim, hidden)  # U₂
        self.energy = nn.Linear(hidden, 1, bias=False)  # u

    def forward(self, regions: Tensor, question: Tensor, answers: Tensor) -> Tensor:
        """Scores [B,T,S] from regions [B,S,D], questions [B,T,Dq] and answers [B,T]."""
        embedded = self.answer(answers)  # [B,T,Dh]
        gated_regions = regions[:, None] * torch.relu(self.region_gate(embedded))[:, :, None]  # [B,T,S,D]
        gated_question = question * torch.relu(self.question_gate(embedded))  # [B,T,Dq]
        hidden = torch.tanh(self.region(gated_regions) + self.question(gated_question)[:, :, None])
        scores: Tensor = self.energy(hidden).squeeze(-1)
        return scores


class VqaModel(nn.Module):
    """Query: LSTM over the question. Prior: MLP score of every region. f: MLP on region and query."""

    def __init__(
        self,
        config: VqaModelConfig,
        *,
        words: int,
        answers: int,
        feature_dim: int,
        needs_posterior: bool,
        word_vectors: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        region_dim = config.region_dim or feature_dim
        self.words = nn.Embedding(words, config.word_dim, padding_idx=PADDING)
        if word_vectors is not None:
            with torch.no_grad():
                self.words.weight.copy_(word_vectors)
        self.question = nn.LSTM(config.word_dim, config.question_dim, batch_first=True)
        self.region = nn.Linear(feature_dim, region_dim) if config.region_dim else None
        self.score = Additive(config.question_dim, region_dim, config.attention_dim)
        self.answer_region = nn.Linear(region_dim, config.answer_hidden_dim, bias=False)
        self.answer_question = nn.Linear(config.question_dim, config.answer_hidden_dim)
        self.answer = nn.Linear(config.answer_hidden_dim, answers)
        self.dropout = nn.Dropout(config.dropout)
        self.posterior = (
            VqaInferenceNetwork(config, answers=answers, region_dim=region_dim) if needs_posterior else None
        )

    def example_prior(self) -> Categorical:
        """A prior over one region, to see what kind it is."""
        return Categorical.from_scores(torch.zeros(1, 1, 1), normalizer=self.config.normalizer)

    def problem(self, batch: VqaBatch, *, with_posterior: bool = False) -> AlignmentProblem:
        question = self.encode_question(batch.words, batch.lengths)  # [B,1,Dq]
        regions = self.encode_regions(batch.regions)  # [B,S,D]
        normalizer = self.config.normalizer
        prior_scores = self.score(question, regions)
        prior = Categorical.from_scores(prior_scores, batch.region_mask, normalizer=normalizer)
        likelihood = ContextLikelihood(
            self._head,
            self.answer_region(regions),
            self.answer_question(question),
            batch.targets,
            width=self.answer.out_features,
        )
        posterior = None
        if with_posterior:
            # cut off: the inference network must not pull the generative model towards itself
            scores = self._need_posterior()(regions.detach(), question.detach(), batch.targets)
            if self.config.posterior_from_prior:
                scores = from_prior(prior_scores, scores)
            posterior = Categorical.from_scores(scores, batch.region_mask, normalizer=normalizer)
        return AlignmentProblem(
            prior=prior, likelihood=likelihood, weights=batch.answerable, posterior=posterior
        )

    def encode_question(self, words: Tensor, lengths: Tensor) -> Tensor:
        """The last state of the LSTM over each question, as one query: [B,1,Dq]."""
        embedded = self.dropout(self.words(words))
        packed = pack_padded_sequence(embedded, lengths.cpu(), batch_first=True, enforce_sorted=False)
        _, (last, _) = self.question(packed)
        query: Tensor = self.dropout(last[-1])[:, None]
        return query

    def encode_regions(self, features: Tensor) -> Tensor:
        regions = features if self.region is None else torch.relu(self.region(features))
        dropped: Tensor = self.dropout(regions)
        return dropped

    def _head(self, region: Tensor, question: Tensor) -> Tensor:
        logits: Tensor = self.answer(torch.relu(region + question))
        return logits

    def _need_posterior(self) -> VqaInferenceNetwork:
        if self.posterior is None:
            raise RuntimeError("this model was built without an inference network")
        return self.posterior

    def theta(self) -> list[nn.Parameter]:
        inference = {id(parameter) for parameter in self.phi()}
        return [parameter for parameter in self.parameters() if id(parameter) not in inference]

    def phi(self) -> list[nn.Parameter]:
        return list(self.posterior.parameters()) if self.posterior is not None else []

    def measures(
        self,
        batch: VqaBatch,
        problem: AlignmentProblem,
        predictor: Predictor,
        *,
        generator: torch.Generator | None = None,
    ) -> dict[str, tuple[float, float]]:
        return measure_batch(batch, problem, predictor, generator=generator)
