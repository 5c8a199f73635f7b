"""The dynamic memory network: facts in context, episodes of a recurrent memory gated by attention."""

import torch
from torch import Tensor, nn

from latentalign.alignment.likelihoods.heads import Head
from latentalign.alignment.likelihoods.likelihood import ContextLikelihood
from latentalign.memory.config import MemoryModelConfig
from latentalign.memory.dataset import MemoryBatch
from latentalign.memory.encoding import build_encoders, split_batch
from latentalign.memory.reading import Reading, masked_softmax
from latentalign.memory.vocabulary import Vocabulary


class AttentionGRU(nn.Module):
    """A recurrent pass over facts in which attention takes the place of the update gate.

    h_i = g_i·tanh(W f_i + r_i ∘ U h_(i−1)) + (1 − g_i)·h_(i−1), from h_0 = 0.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.input = nn.Linear(size, 2 * size)
        self.recurrent = nn.Linear(size, 2 * size, bias=False)

    def forward(self, facts: Tensor, gates: Tensor) -> Tensor:
        """Facts [B,S,D] and gates [K,B,S] (0 where there is no fact) -> episodes [K,B,D]."""
        reset_inputs, inputs = self.input(facts).chunk(2, dim=-1)  # [B,S,D]
        state = facts.new_zeros(*gates.shape[:2], facts.shape[-1])
        for slot in range(facts.shape[1]):
            reset_state, candidate_state = self.recurrent(state).chunk(2, dim=-1)
            reset = torch.sigmoid(reset_inputs[:, slot] + reset_state)
            candidate = torch.tanh(inputs[:, slot] + reset * candidate_state)
            state = torch.lerp(state, candidate, gates[..., slot, None])
        return state

    def single(self, facts: Tensor) -> Tensor:
        """The episode of one fact alone (gate 1 there, 0 elsewhere), for every fact: [B,S,D]."""
        return torch.tanh(self.input(facts).chunk(2, dim=-1)[1])


class EpisodeLikelihood(ContextLikelihood):
    """log f where one slot gives the episode of its fact, and a mixture runs through all facts in order."""

    def __init__(
        self,
        head: Head,
        facts: Tensor,
        *,
        episode: AttentionGRU,
        queries: Tensor,
        targets: Tensor | None,
        width: int,
    ) -> None:
        super().__init__(head, episode.single(facts), queries, targets, width=width)
        self.facts, self.episode = facts, episode

    def mixture(self, z: Tensor) -> Tensor:
        self._need_targets()
        assert self.targets is not None
        gates = z if z.dim() == 4 else z[None]  # [K,B,1,S]
        log_probs = self._mixed_log_probs(gates)  # [K,B,1,V]
        targets = self.targets.expand(gates.shape[:-1])
        chosen = log_probs.gather(-1, targets[..., None])[..., 0]
        return chosen if z.dim() == 4 else chosen[0]

    def log_probs_mixture(self, z: Tensor) -> Tensor:
        return self._mixed_log_probs(z[None])[0]

    def _mixed_log_probs(self, gates: Tensor) -> Tensor:
        episodes = self.episode(self.facts, gates[:, :, 0])  # [K,B,D]
        queries = self.queries[:, 0].expand(len(episodes), -1, -1)
        return self._log_probs(episodes, queries)[:, :, None]


class Dynamic(nn.Module):
    """Input, question, episodic memory and answer modules; attention of the last episode is the latent."""

    def __init__(
        self, config: MemoryModelConfig, vocabulary: Vocabulary, *, memory: int, batches: int = 1
    ) -> None:
        super().__init__()
        self.config = config
        size = config.size
        self.encoder, self.temporal = build_encoders(config, vocabulary, memory=memory)
        self.fusion = nn.GRU(size, size, batch_first=True, bidirectional=True)
        self.question = nn.Linear(size, size)
        self.gate = nn.Sequential(nn.Linear(4 * size, size), nn.Tanh(), nn.Linear(size, 1))
        self.episode = AttentionGRU(size)
        self.updates = nn.ModuleList(nn.Linear(3 * size, size) for _ in range(config.hops))
        self.output = nn.Linear(2 * size, len(vocabulary.answers))
        self.dropout = nn.Dropout(config.dropout)

    def count(self) -> None:
        """Nothing changes with the number of batches."""

    def forward(self, batch: MemoryBatch, targets: Tensor | None) -> Reading:
        """Read the facts; `targets` [B,1] are the observed answers."""
        encoded, asked = split_batch(self.encoder(batch.sentences)[:, 0], batch)  # [B,S,D], [B,D]
        if self.temporal is not None:
            encoded = encoded + self.temporal(batch.age)[:, :, 0]
        facts = self._in_context(self.dropout(encoded), batch.mask)
        question = torch.tanh(self.question(asked))
        memory, earlier = question, []
        for update in self.updates[:-1]:
            earlier.append(self._scores(facts, question, memory))
            gates = masked_softmax(earlier[-1], batch.mask)
            episode = self.episode(facts, gates[None])[0]
            memory = torch.relu(update(torch.cat([memory, episode, question], dim=-1)))
        size = self.config.size

        def head(context: Tensor, query: Tensor) -> Tensor:
            last, asked = query[..., :size], query[..., size:]
            final = torch.relu(self.updates[-1](torch.cat([last, context, asked], dim=-1)))
            logits: Tensor = self.output(torch.cat([final, asked], dim=-1))
            return logits

        queries = torch.cat([memory, question], dim=-1)[:, None]
        width = self.output.out_features
        likelihood = EpisodeLikelihood(
            head, facts, episode=self.episode, queries=queries, targets=targets, width=width
        )
        scores = self._scores(facts, question, memory)
        return Reading(scores, batch.mask, likelihood, tuple(earlier))

    def _in_context(self, facts: Tensor, mask: Tensor) -> Tensor:
        """Facts with their neighbours: a recurrent pass in each direction, added up."""
        lengths = mask.sum(dim=1).cpu()
        packed = nn.utils.rnn.pack_padded_sequence(facts, lengths, batch_first=True, enforce_sorted=False)
        states, _ = nn.utils.rnn.pad_packed_sequence(self.fusion(packed)[0], batch_first=True)
        forth, back = states.chunk(2, dim=-1)
        in_context: Tensor = self.dropout(forth + back)
        return in_context

    def _scores(self, facts: Tensor, question: Tensor, memory: Tensor) -> Tensor:
        question, memory = question[:, None], memory[:, None]
        features = [facts * question, facts * memory, (facts - question).abs(), (facts - memory).abs()]
        scores: Tensor = self.gate(torch.cat(features, dim=-1))
        return scores[..., 0]
