"""Expected counts: what is learnt from a corpus, and what adds up over shards, updates and aligners."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_CHUNK = 1 << 18  # counts of the largest part added up at a time
Two = tuple[np.ndarray, np.ndarray]  # of the directions target given source, source given target


def pair_keys(sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """One number for a pair of numbers, in the order of the sources, then of the targets."""
    return (sources.astype(np.int64) << 32) | targets.astype(np.int64)


@dataclass(frozen=True)
class SparseCounts:
    """Counts of pairs by their keys, ascending; every other pair has none."""

    keys: np.ndarray  # [N] int64
    values: np.ndarray  # [N] float32

    @classmethod
    def empty(cls) -> "SparseCounts":
        return cls(np.empty(0, np.int64), np.empty(0, np.float32))

    @classmethod
    def collect(cls, keys: np.ndarray, values: np.ndarray) -> "SparseCounts":
        """Keys in any order, and more than once."""
        order = np.argsort(keys, kind="stable")  # sorted runs are merged, not sorted again
        keys, values = keys[order], values[order]
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        if not len(first):
            return cls.empty()
        return cls(keys[first], np.add.reduceat(values, first, dtype=np.float64).astype(np.float32))

    @classmethod
    def total(cls, parts: Sequence["SparseCounts"]) -> "SparseCounts":
        """The sum of counts, a range of keys at a time: memory holds little beside parts and sum."""
        if len(parts) == 1:
            return parts[0]
        largest = max(parts, key=len).keys
        limits = largest[_CHUNK::_CHUNK]
        places = [[0, *np.searchsorted(part.keys, limits).tolist(), len(part)] for part in parts]
        sums = []
        for number in range(len(limits) + 1):
            inside = [
                part.part(slice(place[number], place[number + 1]))
                for part, place in zip(parts, places, strict=True)
            ]
            sums.append(
                cls.collect(
                    np.concatenate([part.keys for part in inside]),
                    np.concatenate([part.values for part in inside]),
                )
            )
        return cls(
            np.concatenate([part.keys for part in sums]), np.concatenate([part.values for part in sums])
        )

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def sources(self) -> np.ndarray:
        return self.keys >> 32

    @property
    def targets(self) -> np.ndarray:
        return self.keys & 0xFFFFFFFF

    def part(self, which: np.ndarray | slice) -> "SparseCounts":
        return SparseCounts(self.keys[which], self.values[which])

    def lookup(self, keys: np.ndarray) -> np.ndarray:
        """The counts of these pairs, distinct and ascending; 0 where there are none."""
        found = np.zeros(len(keys), np.float32)
        if not len(keys) or not len(self.keys):
            return found
        # the fewer are looked up among the more
        if len(self.keys) < len(keys):
            place = np.minimum(np.searchsorted(keys, self.keys), len(keys) - 1)
            known = keys[place] == self.keys
            found[place[known]] = self.values[known]
        else:
            place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
            known = self.keys[place] == keys
            found[known] = self.values[place[known]]
        return found

    def pruned(self, *, least: float, most: int) -> "SparseCounts":
        """Without counts below `least`, and without the smallest where more than `most` are left."""
        kept = self.values >= least
        if np.count_nonzero(kept) > most:
            # equal counts are all kept or all dropped, so that the order of pairs does not matter
            limit = np.partition(self.values, len(self.values) - most - 1)[len(self.values) - most - 1]
            kept = self.values > limit
        return self if kept.all() else SparseCounts(self.keys[kept], self.values[kept])


@dataclass(frozen=True)
class JumpCounts:
    """N(d), how often a class of words jumped by d, and E(d) = Σ outgoing / Z over the places where d was possible."""

    taken: np.ndarray  # [K+1, 2W+1] float64; the last class is the start of a sentence
    exposure: np.ndarray  # [K+1, 2W+1] float64

    @classmethod
    def total(cls, parts: Sequence["JumpCounts"]) -> "JumpCounts":
        return cls(_sum([part.taken for part in parts]), _sum([part.exposure for part in parts]))


@dataclass(frozen=True)
class Counts:
    """Expected counts of a corpus. Pairs of directions: target given source, then source given target."""

    links: tuple[SparseCounts, SparseCounts]  # one and the same object where the directions agree
    null: Two  # [V of target], [V of source]: how often a word had no link
    jumps: tuple[JumpCounts, JumpCounts]
    pairs: int
    words: int  # of both sides
    log_likelihood: float  # of both directions, before these counts were estimated

    @classmethod
    def total(cls, parts: Sequence["Counts"]) -> "Counts":
        """The sum of counts over the same vocabularies."""
        forward = SparseCounts.total([part.links[0] for part in parts])
        agreed = all(part.links[0] is part.links[1] for part in parts)
        backward = forward if agreed else SparseCounts.total([part.links[1] for part in parts])
        return cls(
            (forward, backward),
            (_sum([part.null[0] for part in parts]), _sum([part.null[1] for part in parts])),
            (
                JumpCounts.total([part.jumps[0] for part in parts]),
                JumpCounts.total([part.jumps[1] for part in parts]),
            ),
            sum(part.pairs for part in parts),
            sum(part.words for part in parts),
            sum(part.log_likelihood for part in parts),
        )

    def pruned(self, *, least: float, most: int) -> "Counts":
        forward = self.links[0].pruned(least=least, most=most)
        agreed = self.links[0] is self.links[1]
        backward = forward if agreed else self.links[1].pruned(least=least, most=most)
        return Counts((forward, backward), self.null, self.jumps, self.pairs, self.words, self.log_likelihood)


def _sum(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.asarray(np.sum(arrays, axis=0))
