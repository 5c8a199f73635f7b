"""The lexicon t(e|f) of one direction: expected counts, smoothed by affixes and by likeness.

t(e|f) = g(a(f,e)) / g(Σ_e a(f,e)) with a(f,e) = count + α + Σ_l w·π_l(e|f) + likeness(f,e). The prior of a word spreads
over the whole vocabulary, so that t of a pair does not depend on which other pairs are looked at, and a pair of words
that were never seen together (or never at all) has a value like every other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from latentalign.wordalign.estimation.counts import SparseCounts, pair_keys
from latentalign.wordalign.settings import Settings
from latentalign.wordalign.text.cooccurrence import PairTable
from latentalign.wordalign.text.likeness import likeness
from latentalign.wordalign.text.vocabulary import BANDS, Cut, WordVocabulary

_CHUNK = 1 << 20  # pairs worked on at a time
Estimate = Callable[[Tensor], Tensor]  # from pseudo-counts to weights


def mean(counts: Tensor) -> Tensor:
    """The posterior mean: a / Σ a."""
    return counts


def exp_digamma(counts: Tensor) -> Tensor:
    """The variational estimate exp ψ(a): close to a − ½ for large a, next to nothing below ½."""
    return torch.exp(torch.digamma(counts))


def cuts(settings: Settings) -> list[Cut]:
    """Which letters of a word are its affixes."""
    if not settings.affix_weight:
        return []
    return [*(slice(None, n) for n in settings.prefixes), *(slice(-n, None) for n in settings.suffixes)]


@dataclass(frozen=True)
class IndexedTable:
    """A table of pairs with everything about it that does not change while learning."""

    table: PairTable
    affixes: list["AffixPairs"]  # by each cut
    alike: tuple[np.ndarray, np.ndarray]  # which pairs look alike, and their pseudo-counts

    @classmethod
    def of(cls, table: PairTable, settings: Settings) -> "IndexedTable":
        affixes = [AffixPairs.of(table, cut) for cut in cuts(settings)]
        alike = np.array([], np.int64), np.array([])
        if settings.likeness_weight:
            spellings = (table.words[0].spellings, table.words[1].spellings)
            which, dice = likeness(spellings, (table.source, table.target), least=settings.least_likeness)
            alike = which, settings.likeness_weight * dice**2
        return cls(table, affixes, alike)


@dataclass(frozen=True)
class AffixPairs:
    """The pairs of affixes that the pairs of a table have by one cut."""

    of_pair: np.ndarray  # [N] int32: the pair of affixes of every pair of words
    keys: np.ndarray  # [number of pairs of affixes] int64, ascending

    @classmethod
    def of(cls, table: PairTable, cut: Cut) -> "AffixPairs":
        source, target = (words.affixes(cut) for words in table.words)
        keys, of_pair = np.unique(pair_keys(source[table.source], target[table.target]), return_inverse=True)
        return cls(of_pair.astype(np.int32), keys)


def affix_totals(
    counts: SparseCounts, vocabularies: tuple[WordVocabulary, WordVocabulary], cut: Cut
) -> SparseCounts:
    """Counts of pairs of words as counts of pairs of affixes."""
    source, target = (vocabulary.affixes(cut).of_word for vocabulary in vocabularies)
    parts = [SparseCounts.empty()]
    for begin in range(0, len(counts), _CHUNK):
        part = counts.part(slice(begin, begin + _CHUNK))
        keys = pair_keys(source[part.sources], target[part.targets])
        parts.append(SparseCounts.collect(keys, part.values))
    return SparseCounts.total(parts)


@dataclass(frozen=True)
class Lexicon:
    """t(predicted | given) of one direction for any pair of words."""

    norm: np.ndarray  # [V of given] Σ a
    new_norm: float  # Σ a of a word that was never seen
    affixes: list[tuple[Cut, SparseCounts]]  # t(affix of predicted | affix of given) by each cut
    bands: np.ndarray  # [bands, bands] p(band of frequency of predicted | band of given)
    forward: bool  # whether the source words are given
    settings: Settings
    estimate: Estimate

    @classmethod
    def of(
        cls,
        counts: SparseCounts,
        totals: Sequence[SparseCounts],
        vocabularies: tuple[WordVocabulary, WordVocabulary],
        settings: Settings,
        *,
        forward: bool,
        estimate: Estimate,
    ) -> "Lexicon":
        """The M-step; `totals` are the counts of pairs of affixes by each cut."""
        given, predicted = vocabularies if forward else vocabularies[::-1]
        affixes = []
        for cut, total in zip(cuts(settings), totals, strict=True):
            givens = total.sources if forward else total.targets
            alpha = settings.affix_alpha
            norm = np.bincount(givens, weights=total.values, minlength=1) + alpha * len(
                predicted.affixes(cut)
            )
            t = exp_digamma(torch.from_numpy(total.values + np.float32(alpha))).numpy()
            t /= exp_digamma(torch.from_numpy(norm)).float().numpy()[givens]
            affixes.append((cut, SparseCounts(total.keys, t)))
        prior = settings.alpha * len(predicted) + settings.affix_weight * len(affixes)
        givens = counts.sources if forward else counts.targets
        norm = np.bincount(givens, weights=counts.values, minlength=len(given)) + prior
        bands = _band_probs(counts, vocabularies)
        return cls(norm, prior, affixes, _rows(bands if forward else bands.T), forward, settings, estimate)

    def translate(self, indexed: IndexedTable, counts: np.ndarray) -> Tensor:
        """t for every pair of the table, given their counts, and 0 for a cell of padding [N+1]."""
        table, settings = indexed.table, self.settings
        given, predicted = (table.source, table.target) if self.forward else (table.target, table.source)
        words = table.words if self.forward else table.words[::-1]
        a = torch.from_numpy(counts).float() + settings.alpha
        for (cut, probs), pairs in zip(self.affixes, indexed.affixes, strict=True):
            weights = torch.from_numpy(probs.lookup(pairs.keys))
            shares = torch.from_numpy(settings.affix_weight * words[1].shares(cut)).float()
            spread = weights.index_select(0, torch.from_numpy(pairs.of_pair))
            a += spread.mul_(shares.index_select(0, torch.from_numpy(predicted)))
        which, extra = indexed.alike
        a[torch.from_numpy(which)] += torch.from_numpy(extra).float()
        norm = words[0].pick(self.norm)
        norm[len(words[0].known) :] = self.new_norm
        scale = self.estimate(torch.from_numpy(norm)).float()
        t = self.estimate(a).div_(scale.index_select(0, torch.from_numpy(given)))
        if settings.band_weight:
            given_band, predicted_band = (torch.from_numpy(side.bands) for side in words)
            cell = given_band.index_select(0, torch.from_numpy(given)) * BANDS
            cell += predicted_band.index_select(0, torch.from_numpy(predicted))
            shares = torch.from_numpy(settings.band_weight * words[1].band_shares).float()
            broad = torch.from_numpy(self.bands).float().view(-1).index_select(0, cell)
            t += broad.mul_(shares.index_select(0, torch.from_numpy(predicted)))
        return torch.cat([t, t.new_zeros(1)])


def _rows(counts: np.ndarray) -> np.ndarray:
    smoothed = np.ascontiguousarray(counts) + 0.1
    return smoothed / smoothed.sum(axis=1, keepdims=True)


def _band_probs(counts: SparseCounts, vocabularies: tuple[WordVocabulary, WordVocabulary]) -> np.ndarray:
    source, target = (vocabulary.bands for vocabulary in vocabularies)
    cell = source[counts.sources] * BANDS + target[counts.targets]
    return np.bincount(cell, weights=counts.values, minlength=BANDS * BANDS).reshape(BANDS, BANDS)
