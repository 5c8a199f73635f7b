"""Expectation–maximisation: rounds of expected counts over shards, each followed by an estimate."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from latentalign.wordalign.estimation.counts import Counts
from latentalign.wordalign.estimation.expectation import Round, Shard, expected_counts
from latentalign.wordalign.estimation.lexicon import Estimate, exp_digamma, mean
from latentalign.wordalign.estimation.model import Model, Vocabularies, no_counts, pruned_total
from latentalign.wordalign.settings import Settings


@dataclass(frozen=True)
class LearningStep:
    """How far learning is."""

    done: int  # shards, over all rounds
    total: int
    stage: str
    log_likelihood: float | None  # per word, of the last round that ended


Report = Callable[[LearningStep], None]


class Shards(Protocol):
    """Shards by number, in memory or on disk."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> Shard: ...


class Work(Protocol):
    """Does the E-step of all shards, in order."""

    def __len__(self) -> int: ...

    def expect(self, model: Model, step: Round) -> Iterable[Counts]: ...


class InOneProcess:
    """Shard by shard, here."""

    def __init__(self, shards: Shards) -> None:
        self.shards = shards

    def __len__(self) -> int:
        return len(self.shards)

    def expect(self, model: Model, step: Round) -> Iterator[Counts]:
        for number in range(len(self)):
            yield expected_counts(self.shards[number], model, step)


def learn(
    work: Work,
    vocabularies: Vocabularies,
    settings: Settings,
    rounds: list[Round],
    *,
    before: Counts | None = None,
    report: Report = lambda progress: None,
) -> tuple[Counts, list[float]]:
    """Counts after the last round, and the log-likelihood per word that each round began with.

    `before` are counts of what was learnt earlier: they are part of every estimate.
    """
    counts = before or no_counts(vocabularies, settings)
    estimate: Estimate = mean if before is None else exp_digamma
    history: list[float] = []
    total = len(work) * len(rounds)
    report(LearningStep(0, total, "begin", None))
    for number, step in enumerate(rounds):

        def counted(parts: Iterable[Counts], number: int = number, step: Round = step) -> Iterator[Counts]:
            for done, part in enumerate(parts, start=number * len(work) + 1):
                yield part
                report(LearningStep(done, total, step.name, history[-1] if history else None))

        # no name for the model: memory holds one at a time
        parts = work.expect(Model.of(counts, vocabularies, settings, estimate), step)
        new = pruned_total(counted(parts), settings)
        history.append(new.log_likelihood / max(1, new.words))
        counts = new if before is None else pruned_total([before, new], settings)
        estimate = step.estimate
    return counts, history
