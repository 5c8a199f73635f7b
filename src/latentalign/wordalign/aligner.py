"""The aligner: learns from pairs, aligns pairs, is saved, loaded, updated and merged."""

import heapq
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np

from latentalign.errors import UserError
from latentalign.text.parallel import Pair, check_pairs
from latentalign.wordalign.calibration import Calibration
from latentalign.wordalign.decoding import PairPosteriors
from latentalign.wordalign.estimation.counts import Counts
from latentalign.wordalign.estimation.expectation import Shard, schedule
from latentalign.wordalign.estimation.expectation_maximisation import InOneProcess, Report, Work, learn
from latentalign.wordalign.estimation.model import Model, Vocabularies, pruned_total
from latentalign.wordalign.estimation.processes import InProcesses
from latentalign.wordalign.estimation.renumbering import joined, renumbered
from latentalign.wordalign.posteriors import BatchPosteriors, posteriors
from latentalign.wordalign.settings import Settings
from latentalign.wordalign.text.shards import ShardsOnDisk, WordPair, cells, grouped
from latentalign.wordalign.text.vocabulary import WordVocabulary
from latentalign.wordalign.text.words import Line, read_line

_IN_MEMORY = 8  # shards kept in memory; a corpus with more is kept on disk
_SAMPLE = 1000  # pairs that probabilities are calibrated on
_WINDOW = 5000  # pairs aligned at a time: many of the same lengths go through the chain together


@dataclass(frozen=True)
class Aligner:
    """Word links of sentence pairs in two languages.

    >>> pairs = [("das Haus", "the house"), ("das Buch", "the book"), ("ein Buch", "a book")]
    >>> aligner = Aligner.fit(pairs)
    >>> [sorted(pair.links()) for pair in aligner.align([("ein Haus", "a house")])]
    [[(0, 0), (1, 1)]]
    """

    settings: Settings
    vocabularies: Vocabularies  # of source and target
    counts: Counts
    calibration: Calibration = field(default_factory=Calibration)
    history: list[float] = field(default_factory=list)  # log-likelihood per word as each round began

    @cached_property
    def model(self) -> Model:
        """What is estimated from the counts."""
        return Model.of(self.counts, self.vocabularies, self.settings)

    # --- learning ---

    @classmethod
    def fit(
        cls,
        pairs: Iterable[Pair],
        settings: Settings | None = None,
        *,
        processes: int = 1,
        report: Report = lambda progress: None,
    ) -> "Aligner":
        """Learn from pairs of sentences. They are read several times: give a list, or something like it."""
        settings = settings or Settings()
        corpus = _Corpus(pairs, settings)
        vocabularies = corpus.vocabularies()
        with ExitStack() as stack:
            work = corpus.work(vocabularies, processes, stack)
            counts, history = learn(work, vocabularies, settings, schedule(settings), report=report)
        learnt = cls(settings, vocabularies, counts, history=history)
        return learnt.calibrated(corpus.sample)

    def update(
        self,
        pairs: Iterable[Pair],
        *,
        processes: int = 1,
        report: Report = lambda progress: None,
    ) -> "Aligner":
        """Go on learning from new pairs, on top of what is known."""
        corpus = _Corpus(pairs, self.settings)
        source, target = (
            joined([old, new]) for old, new in zip(self.vocabularies, corpus.vocabularies(), strict=True)
        )
        before = renumbered(self.counts, self.vocabularies, (source, target))
        rounds = [step for step in schedule(self.settings) if step.name == "jumps"]
        with ExitStack() as stack:
            work = corpus.work((source, target), processes, stack)
            counts, history = learn(
                work, (source, target), self.settings, rounds, before=before, report=report
            )
        learnt = Aligner(self.settings, (source, target), counts, history=[*self.history, *history])
        new = learnt.calibrated(corpus.sample).calibration
        weights = [
            (self.calibration, float(self.counts.pairs)),
            (new, float(counts.pairs - self.counts.pairs)),
        ]
        return replace(learnt, calibration=Calibration.mean(weights))

    def merge(self, other: "Aligner") -> "Aligner":
        """What both have learnt: the sums of their counts."""
        different = [
            name
            for name in Settings.model_fields
            if getattr(self.settings, name) != getattr(other.settings, name)
        ]
        if different:
            raise UserError(
                f"merge: expected aligners with the same settings, but {', '.join(different)} differ; "
                "learn one of them again with the settings of the other"
            )
        source, target = (joined(both) for both in zip(self.vocabularies, other.vocabularies, strict=True))
        parts = [renumbered(part.counts, part.vocabularies, (source, target)) for part in (self, other)]
        calibration = Calibration.mean(
            [(part.calibration, float(part.counts.pairs)) for part in (self, other)]
        )
        return Aligner(self.settings, (source, target), pruned_total(parts, self.settings), calibration)

    def calibrated(self, lines: Sequence[tuple[Line, Line]]) -> "Aligner":
        """The same aligner, with probabilities and a threshold fitted to its posteriors of these pairs."""
        shard = self._shard(lines)
        fitted = Calibration.fit(
            (found.forward, found.backward, found.inside) for found in posteriors(shard, self.model)
        )
        return replace(self, calibration=fitted)

    # --- aligning ---

    def align(self, pairs: Iterable[Pair]) -> Iterator[PairPosteriors]:
        """Align pairs in their order. What is said of a pair does not depend on the others."""
        stream = check_pairs(pairs)
        while window := list(islice(stream, _WINDOW)):
            yield from self._align_window(window)

    def _align_window(self, pairs: Sequence[Pair]) -> list[PairPosteriors]:
        lines = [_read_pair(pair, self.settings) for pair in pairs]
        longest = [max(len(source.units), len(target.units)) for source, target in lines]
        fitting = [n for n, length in enumerate(longest) if length <= self.settings.longest]
        found: dict[int, PairPosteriors] = {}
        # pairs of more words than a shard holds are worked on by themselves
        sizes = [cells((source.units, target.units)) for source, target in lines]
        for part in grouped(fitting, self.settings.shard_cells, sizes.__getitem__):
            for batch in posteriors(self._shard([lines[n] for n in part]), self.model):
                found.update(self._aligned(lines, part, batch))
        return [
            found.get(n) or _without_links(pair, skipped=longest[n] > self.settings.longest)
            for n, pair in enumerate(lines)
        ]

    def _aligned(
        self, lines: Sequence[tuple[Line, Line]], part: Sequence[int], found: BatchPosteriors
    ) -> Iterator[tuple[int, PairPosteriors]]:
        """The pairs of a batch by their numbers in the window."""
        probs = self.calibration.probs(found.forward, found.backward, found.inside)
        for row, (place, inside) in enumerate(found.pairs()):
            source, target = pair = lines[part[place]]
            result = PairPosteriors(
                source.words,
                target.words,
                _by_words(found.forward[inside], pair),
                _by_words(found.backward[inside], pair),
                _by_words(probs[inside], pair),
                self.calibration.threshold,
                float(found.scores[row]),
                int(found.unknown[row]),
            )
            yield part[place], result

    @property
    def known_words(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """The units of source and target that were learnt from, the most frequent first."""
        return self.vocabularies[0].index, self.vocabularies[1].index

    def units(self, text: str) -> list[str]:
        """What the aligner reads of a sentence."""
        return read_line(text, tokenise=self.settings.tokenise).units

    def _shard(self, lines: Sequence[tuple[Line, Line]]) -> Shard:
        return Shard.of(
            [(source.units, target.units) for source, target in lines], self.vocabularies, self.settings
        )

    # --- on disk ---

    def save(self, folder: str | Path) -> None:
        """Write a folder, whole or not at all."""
        from latentalign.wordalign.folder import save

        save(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path) -> "Aligner":
        from latentalign.wordalign.folder import load

        return load(Path(folder))


class _Corpus:
    """Pairs to learn from: a first pass counts words and picks a sample, a second makes shards."""

    def __init__(self, pairs: Iterable[Pair], settings: Settings) -> None:
        # an iterator would be empty the second time
        self.pairs = list(pairs) if isinstance(pairs, Iterator) else pairs
        self.settings = settings
        self.sample: list[tuple[Line, Line]] = []

    def lines(self) -> Iterator[tuple[Line, Line]]:
        """Pairs that something can be learnt from."""
        for pair in check_pairs(self.pairs):
            source, target = _read_pair(pair, self.settings)
            if (
                source.units
                and target.units
                and max(len(source.units), len(target.units)) <= self.settings.longest_learnt
            ):
                yield source, target

    def vocabularies(self) -> Vocabularies:
        words: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        chosen: list[tuple[int, int, tuple[Line, Line]]] = []
        for number, pair in enumerate(self.lines()):
            for counter, line in zip(words, pair, strict=True):
                counter.update(line.units)
            # pairs with the smallest checksums: the same sample whatever the order
            item = (-zlib.crc32("\t".join([*pair[0].units, "", *pair[1].units]).encode()), number, pair)
            if len(chosen) < _SAMPLE:
                heapq.heappush(chosen, item)
            elif item[0] > chosen[0][0]:
                heapq.heapreplace(chosen, item)
        if not chosen:
            raise UserError(
                "align: there is no pair to learn from; expected lines with words on both sides, "
                f"at most {self.settings.longest_learnt} a side"
            )
        self.sample = [pair for _, _, pair in chosen]
        return WordVocabulary.ranked(words[0]), WordVocabulary.ranked(words[1])

    def work(self, vocabularies: Vocabularies, processes: int, stack: ExitStack) -> Work:
        """Shards in memory if there are few; else on disk."""
        pairs: Iterator[WordPair] = ((source.units, target.units) for source, target in self.lines())
        parts = grouped(pairs, self.settings.shard_cells, cells)
        made = (Shard.of(part, vocabularies, self.settings) for part in parts)
        few = list(islice(made, _IN_MEMORY))
        rest = next(made, None)
        if rest is None and processes == 1:
            return InOneProcess(few)
        on_disk = ShardsOnDisk()
        stack.callback(on_disk.close)
        while few:
            on_disk.append(few.pop(0))
        while rest is not None:
            on_disk.append(rest)
            rest = next(made, None)
        if processes == 1:
            return InOneProcess(on_disk)
        apart = InProcesses(on_disk, processes)
        stack.callback(apart.close)
        return apart


def _read_pair(pair: Pair, settings: Settings) -> tuple[Line, Line]:
    source, target = (read_line(text, tokenise=settings.tokenise) for text in pair)
    return source, target


def _by_words(matrix: np.ndarray, pair: tuple[Line, Line]) -> np.ndarray:
    """Probabilities of units as those of words: two words are linked as surely as their surest units."""
    source, target = pair
    if len(source.words) == len(source.units) and len(target.words) == len(target.units):
        return matrix
    words = np.zeros((len(target.words), len(source.words)), dtype=matrix.dtype)
    np.maximum.at(words, (np.array(target.word_of)[:, None], np.array(source.word_of)[None]), matrix)
    return words


def _without_links(pair: tuple[Line, Line], *, skipped: bool) -> PairPosteriors:
    """An empty side or too many words: no links, and as bad as pairs get."""
    nothing = np.zeros((len(pair[1].words), len(pair[0].words)), dtype=np.float32)
    return PairPosteriors(
        pair[0].words, pair[1].words, nothing, nothing, nothing, 1.0, -float("inf"), skipped=skipped
    )
