"""The strongly supervised memory network: one fact a hop, chosen hard; supporting facts are observed hops."""

import torch
from torch import Tensor, nn

from latentalign.alignment.likelihoods.likelihood import ContextLikelihood
from latentalign.alignment.scores import Additive
from latentalign.memory.config import MemoryModelConfig
from latentalign.memory.dataset import MemoryBatch
from latentalign.memory.encoding import build_encoders, split_batch
from latentalign.memory.reading import Reading, hop_targets
from latentalign.memory.vocabulary import Vocabulary


class Supervised(nn.Module):
    """Hop by hop the fact of the best score joins the state; the fact of the last hop is the latent.

    While training, hops follow the supporting facts of the file where it names them, and the model's own
    choice where it does not; at test time they always follow the model's own choice.
    """

    def __init__(
        self, config: MemoryModelConfig, vocabulary: Vocabulary, *, memory: int, batches: int = 1
    ) -> None:
        super().__init__()
        self.config = config
        size = config.size
        self.encoder, self.temporal = build_encoders(config, vocabulary, memory=memory)
        self.scores = nn.ModuleList(Additive(size, size, 2 * size) for _ in range(config.hops))
        self.joins = nn.ModuleList(nn.Linear(2 * size, size) for _ in range(config.hops))
        self.output = nn.Linear(size, len(vocabulary.answers))
        self.dropout = nn.Dropout(config.dropout)

    def count(self) -> None:
        """Nothing changes with the number of batches."""

    def forward(self, batch: MemoryBatch, targets: Tensor | None) -> Reading:
        """Read the facts; `targets` [B,1] are the observed answers."""
        encoded, questions = split_batch(self.encoder(batch.sentences)[:, 0], batch)  # [B,S,D], [B,D]
        facts = encoded if self.temporal is None else encoded + self.temporal(batch.age)[:, :, 0]
        facts, state = self.dropout(facts), self.dropout(questions)
        supporting = hop_targets(batch.support, self.config.hops)  # [B,hops]
        scores = []
        for hop, (score, join) in enumerate(zip(self.scores, self.joins, strict=True)):
            scores.append(score(state[:, None], facts)[:, 0])  # [B,S]
            if hop == self.config.hops - 1:
                break
            choice = scores[-1].masked_fill(~batch.mask, -torch.inf).argmax(dim=-1)
            if self.training:
                choice = torch.where(supporting[:, hop] >= 0, supporting[:, hop], choice)
            fact = facts[torch.arange(len(batch), device=facts.device), choice]
            state = state + torch.tanh(join(torch.cat([state, fact], dim=-1)))

        def head(context: Tensor, query: Tensor) -> Tensor:
            final = query + torch.tanh(self.joins[-1](torch.cat([query, context], dim=-1)))
            logits: Tensor = self.output(final)
            return logits

        likelihood = ContextLikelihood(head, facts, state[:, None], targets, width=self.output.out_features)
        return Reading(scores[-1], batch.mask, likelihood, tuple(scores[:-1]))
