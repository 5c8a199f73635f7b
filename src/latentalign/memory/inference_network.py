"""The inference network: a memory network of its own whose question holds the answer."""

import torch
from torch import Tensor, nn

from latentalign.memory.config import MemoryModelConfig
from latentalign.memory.dataset import MemoryBatch
from latentalign.memory.encoding import SentenceEncoder, TemporalEncoding, split_batch
from latentalign.memory.reading import masked_softmax, walk_paths
from latentalign.memory.vocabulary import PAD, Vocabulary


class MemoryInferenceNetwork(nn.Module):
    """Scores of q(z | facts, question, answer), for the last hop or for every path.

    It reads the generative model's word vectors (detached: it must not disturb them) through projections of
    its own, and shares nothing else with it. It is not used at test time.
    """

    words_of_answer: Tensor

    def __init__(
        self, config: MemoryModelConfig, vocabulary: Vocabulary, encoder: SentenceEncoder, *, memory: int
    ) -> None:
        super().__init__()
        self.config = config
        width, size = encoder.tables * encoder.size, config.inference_size
        # facts are read once for the keys and once for the values of every hop
        self.facts = nn.Linear(width, 2 * config.hops * size)
        self.temporal = TemporalEncoding(memory, 2 * config.hops * size, init_scale=config.init_scale)
        self.question = nn.Linear(width, size)
        self.answer_words = nn.Linear(width, size, bias=False)
        self.answers = nn.Embedding(len(vocabulary.answers), size)
        nn.init.normal_(self.answers.weight, std=config.init_scale)
        longest = max(1, *map(len, vocabulary.answer_words))
        padded = [words + [PAD] * (longest - len(words)) for words in vocabulary.answer_words]
        self.register_buffer("words_of_answer", torch.tensor(padded), persistent=False)

    def forward(self, batch: MemoryBatch, encoder: SentenceEncoder) -> Tensor:
        """Scores [B,Z]: slots of the last hop, or paths."""
        table = encoder.table.detach()
        sentences = torch.cat([batch.sentences, self._answer_sentences(batch)])
        encoded = encoder(sentences, table).flatten(1)  # [N+2B,tables·D]
        facts, questions = split_batch(encoded[: -len(batch)], batch)
        seen: Tensor = self.facts(facts) + self.temporal(batch.age)[:, :, 0]
        pieces = seen.chunk(2 * self.config.hops, dim=-1)
        keys, values = list(pieces[: self.config.hops]), list(pieces[self.config.hops :])
        state: Tensor = self.question(questions) + self.answer_words(encoded[-len(batch) :])
        state = torch.tanh(state + self.answers(batch.answers[:, 0]))
        if self.config.latent == "path":
            log_path, mask, _ = walk_paths(state, keys, values, batch.mask)
            return log_path.masked_fill(~mask, 0.0)
        for key, value in zip(keys[:-1], values[:-1], strict=True):
            attention = masked_softmax((key @ state[..., None])[..., 0], batch.mask)
            state = state + torch.tanh((attention[:, None] @ value)[:, 0])
        return (keys[-1] @ state[..., None])[..., 0]

    def _answer_sentences(self, batch: MemoryBatch) -> Tensor:
        """The words of the answers, as wide as the sentences of the batch."""
        words = self.words_of_answer[batch.answers[:, 0]]  # [B,J']
        width = batch.sentences.shape[1]
        if words.shape[1] >= width:
            return words[:, :width]
        return nn.functional.pad(words, (0, width - words.shape[1]), value=PAD)
