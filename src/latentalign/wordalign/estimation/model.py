"""The model of both directions, as estimated from counts."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from latentalign.wordalign.estimation.counts import Counts, SparseCounts
from latentalign.wordalign.estimation.jumps import JumpTables, no_jumps
from latentalign.wordalign.estimation.lexicon import (
    Estimate,
    IndexedTable,
    Lexicon,
    affix_totals,
    cuts,
    exp_digamma,
)
from latentalign.wordalign.settings import Settings
from latentalign.wordalign.text.vocabulary import WordList, WordVocabulary

_LEAST_NULL = 1e-12  # a word that nothing explains is without a link

Vocabularies = tuple[WordVocabulary, WordVocabulary]  # of source and target


@dataclass(frozen=True)
class Model:
    """What E-steps and alignment need. Pairs of directions: target given source, then source given target."""

    vocabularies: Vocabularies
    links: tuple[SparseCounts, SparseCounts]
    lexicons: tuple[Lexicon, Lexicon]
    null: tuple[np.ndarray, np.ndarray]  # p(word | no link): [V of target], [V of source]
    jumps: tuple[JumpTables, JumpTables]
    settings: Settings

    @classmethod
    def of(
        cls, counts: Counts, vocabularies: Vocabularies, settings: Settings, estimate: Estimate = exp_digamma
    ) -> "Model":
        """The M-step. Without counts it is the prior: words that look alike, all else by frequency."""
        forward, backward = counts.links
        totals = [affix_totals(forward, vocabularies, cut) for cut in cuts(settings)]
        lexicon = Lexicon.of(forward, totals, vocabularies, settings, forward=True, estimate=estimate)
        if backward is not forward:
            totals = [affix_totals(backward, vocabularies, cut) for cut in cuts(settings)]
        reverse = Lexicon.of(backward, totals, vocabularies, settings, forward=False, estimate=estimate)
        null = (
            _null(counts.null[0], vocabularies[1], settings),
            _null(counts.null[1], vocabularies[0], settings),
        )
        forward_jumps, backward_jumps = (
            JumpTables.of(jumps, settings) if jumps.taken.any() else JumpTables.initial(settings)
            for jumps in counts.jumps
        )
        return cls(
            vocabularies, counts.links, (lexicon, reverse), null, (forward_jumps, backward_jumps), settings
        )

    def translate(self, indexed: IndexedTable) -> tuple[Tensor, Tensor]:
        """t(e|f) and t(f|e) for every pair of the table [N+1]."""
        keys = indexed.table.keys
        forward = self.links[0].lookup(keys)
        agreed = self.links[0] is self.links[1]
        backward = forward if agreed else self.links[1].lookup(keys)
        return self.lexicons[0].translate(indexed, forward), self.lexicons[1].translate(indexed, backward)

    def null_of(self, words: WordList, direction: int) -> Tensor:
        """p(word | no link) of the words [n+1]; the last is padding."""
        probs = words.pick(self.null[direction])
        return torch.from_numpy(np.append(np.maximum(probs, _LEAST_NULL), 0.0).astype(np.float32))


def _null(counts: np.ndarray, vocabulary: WordVocabulary, settings: Settings) -> np.ndarray:
    if not counts.any():
        return vocabulary.counts / max(1, vocabulary.counts.sum())
    a = torch.from_numpy(counts + settings.alpha)
    return (exp_digamma(a) / exp_digamma(a.sum())).numpy()


def no_counts(vocabularies: Vocabularies, settings: Settings) -> Counts:
    """Nothing learnt yet."""
    nothing = SparseCounts.empty()
    null = np.zeros(len(vocabularies[1])), np.zeros(len(vocabularies[0]))
    return Counts((nothing, nothing), null, (no_jumps(settings), no_jumps(settings)), 0, 0, 0.0)


def pruned_total(parts: Iterable[Counts], settings: Settings) -> Counts:
    """The sum of counts, within the bounds of the settings; no more than two are held at a time."""
    total: Counts | None = None
    for part in parts:
        total = part if total is None else Counts.total([total, part])
        total = total.pruned(least=settings.least_count, most=settings.most_counts)
    assert total is not None
    return total
