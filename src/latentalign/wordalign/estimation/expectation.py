"""E-steps: what a model expects of a shard of pairs. One takes words alone into account, the other jumps as well."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from latentalign.alignment.chains.hidden_markov import ExpectedCounts
from latentalign.alignment.chains.hidden_markov import expected_counts as expect_chain
from latentalign.wordalign.estimation.counts import Counts, SparseCounts
from latentalign.wordalign.estimation.jumps import JumpMatrix, JumpSums
from latentalign.wordalign.estimation.lexicon import Estimate, IndexedTable, exp_digamma, mean
from latentalign.wordalign.estimation.model import Model, Vocabularies
from latentalign.wordalign.settings import Settings
from latentalign.wordalign.text.cooccurrence import index_cells
from latentalign.wordalign.text.corpus import SentenceBatch, Sentences, make_batches
from latentalign.wordalign.text.vocabulary import Units


@dataclass(frozen=True)
class Shard:
    """Some pairs of a corpus, indexed once."""

    source: Sentences
    target: Sentences
    batches: list[SentenceBatch]
    cells: Tensor  # [all cells of all batches] int32: the pair of words
    indexed: IndexedTable

    @classmethod
    def of(
        cls, pairs: Sequence[tuple[Units, Units]], vocabularies: Vocabularies, settings: Settings
    ) -> "Shard":
        source = Sentences.of((pair[0] for pair in pairs), vocabularies[0])
        target = Sentences.of((pair[1] for pair in pairs), vocabularies[1])
        batches = make_batches(source, target)
        table, cells = index_cells(batches, source, target)
        return cls(source, target, batches, cells, IndexedTable.of(table, settings))

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True)
class Direction:
    """One direction of a batch. Steps are the words that are predicted, positions those that are given."""

    number: int  # 0 for target given source, 1 for source given target
    emission: Tensor  # [B,T,S] t(word of step | word of position)
    null: Tensor  # [B,T] p(word of step | no link)
    steps: Tensor  # [B,T] bool: True for words, False beyond the end
    words: Tensor  # [B,S] the given words by frequency; −1 for padding
    lengths: Tensor  # [B]


@dataclass(frozen=True)
class Posterior:
    """What one direction infers of a batch."""

    links: Tensor  # [B,T,S] p(link | both sentences)
    log_likelihood: Tensor  # [B]


class LoadedShard:
    """A shard with a model's probabilities."""

    def __init__(self, shard: Shard, model: Model) -> None:
        self.shard = shard
        self.model = model
        self.translations = model.translate(shard.indexed)
        source, target = shard.source.words, shard.target.words
        self.null = model.null_of(target, 0), model.null_of(source, 1)
        # the last entry is for padding, whose number is −1
        self.numbers = tuple(torch.from_numpy(np.append(words.numbers, -1)) for words in (source, target))

    def directions(self, batch: SentenceBatch) -> tuple[Direction, Direction]:
        """Target given source; source given target, whose steps are the source's words."""
        cells = self.shard.cells[batch.cells]
        forward, backward = (t.index_select(0, cells).view(batch.shape) for t in self.translations)
        source, target = batch.source, batch.target
        return (
            Direction(0, forward, self.null[0][target], target >= 0, self.numbers[0][source],
                      batch.source_lengths),
            Direction(1, backward.transpose(1, 2).contiguous(), self.null[1][source], source >= 0,
                      self.numbers[1][target], batch.target_lengths),
        )  # fmt: skip


class Independent:
    """Every word chooses its link by itself (IBM model 1); nothing is learnt about jumps."""

    def __init__(self, model: Model) -> None:
        self.null = model.settings.null
        self.sums = tuple(map(JumpSums, model.jumps))

    def posterior(self, side: Direction) -> Posterior:
        linked = side.emission * ((1 - self.null) / side.lengths)[:, None, None]
        total = linked.sum(2).add_(side.null, alpha=self.null).masked_fill_(~side.steps, 1.0)
        return Posterior(linked.div_(total[:, :, None]), total.log().sum(1))


def chain_counts(model: Model, side: Direction) -> tuple[ExpectedCounts, JumpMatrix]:
    """Forward and backward over the chains of a batch: a word's link depends on the link of the word before."""
    jumps = model.jumps[side.number].matrix(side.words, side.lengths)
    found = expect_chain(
        side.emission,
        jumps.probs[:, 1:],
        jumps.probs[:, 0],
        steps=side.steps,
        null=model.settings.null,
        null_emission=side.null,
        end=jumps.end,
    )
    return found, jumps


class LinkChain:
    """A word's link depends on the link of the word before (hidden Markov model); jumps are counted."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.sums = tuple(map(JumpSums, model.jumps))

    def posterior(self, side: Direction) -> Posterior:
        found, jumps = chain_counts(self.model, side)
        self.sums[side.number].add(jumps, found)
        return Posterior(found.positions, found.log_evidence)


# posteriors of links [B,T,S] -> counts of links
Agreement = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def separate(forward: Tensor, backward: Tensor) -> tuple[Tensor, Tensor]:
    """Each direction learns from its own posterior: plain expectation–maximisation."""
    return forward, backward


def geometric_mean(forward: Tensor, backward: Tensor) -> tuple[Tensor, Tensor]:
    """Both learn from √(p·r)."""
    both = (forward * backward).sqrt_()
    return both, both


def product(forward: Tensor, backward: Tensor) -> tuple[Tensor, Tensor]:
    """Both learn from p·r: only from what both are sure of."""
    both = forward * backward
    return both, both


@dataclass(frozen=True)
class Round:
    """One round of learning: how links are inferred, what both directions learn from, how it is estimated."""

    name: str
    link_model: type[Independent] | type[LinkChain]
    agreement: Agreement
    estimate: Estimate


def schedule(settings: Settings) -> list[Round]:
    """Words alone first, then jumps."""
    words = Round("words", Independent, geometric_mean if settings.agree else separate, mean)
    jumps = Round("jumps", LinkChain, product if settings.agree else separate, exp_digamma)
    return [words] * settings.independent_rounds + [jumps] * settings.chain_rounds


def expected_counts(shard: Shard, model: Model, step: Round) -> Counts:
    """What the model expects of the links and jumps of a shard."""
    loaded = LoadedShard(shard, model)
    link_model = step.link_model(model)
    size = len(shard.indexed.table) + 1
    links = [torch.zeros(size) for _ in range(1 if model.settings.agree else 2)]
    null = [torch.zeros(len(null), dtype=torch.float64) for null in loaded.null]
    log_likelihood = 0.0
    for batch in shard.batches:
        forward, backward = (link_model.posterior(side) for side in loaded.directions(batch))
        counts = step.agreement(forward.links, backward.links.transpose(1, 2))
        cells = shard.cells[batch.cells]
        for total, part in zip(links, counts, strict=False):
            total.index_add_(0, cells, part.reshape(-1))
        for total, words, linked in zip(
            null, (batch.target, batch.source), (counts[0].sum(2), counts[1].sum(1)), strict=True
        ):
            # padding is −1, the last entry
            total.index_add_(0, words.view(-1) % len(total), (1 - linked).clamp_min_(0).view(-1).double())
        log_likelihood += float(
            forward.log_likelihood.double().sum() + backward.log_likelihood.double().sum()
        )
    sparse = [_sparse(shard, total, model.settings) for total in links]
    jumps = tuple(sums.counts() for sums in link_model.sums)
    return Counts(
        (sparse[0], sparse[-1]),
        (_scatter(null[0], shard.target), _scatter(null[1], shard.source)),
        (jumps[0], jumps[1]),
        sum(len(batch.numbers) for batch in shard.batches),
        sum(int(batch.source_lengths.sum() + batch.target_lengths.sum()) for batch in shard.batches),
        log_likelihood,
    )


def _sparse(shard: Shard, counts: Tensor, settings: Settings) -> SparseCounts:
    counted = SparseCounts(shard.indexed.table.keys, counts[:-1].numpy())
    return counted.pruned(least=settings.least_count, most=settings.most_counts)


def _scatter(counts: Tensor, sentences: Sentences) -> np.ndarray:
    """Counts of the words of a shard as counts of the vocabulary's words."""
    words = sentences.words
    total = np.zeros(len(words.vocabulary))
    total[words.known] = counts[: len(words.known)].numpy()
    return total
