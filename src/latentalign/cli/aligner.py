"""`latentalign align` without a run: learn an aligner from the pairs, or use one that was saved."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from latentalign.errors import UserError
from latentalign.files import open_atomic, require_distinct

if TYPE_CHECKING:
    from latentalign.text.parallel import Pair
    from latentalign.wordalign.aligner import Aligner
    from latentalign.wordalign.decoding import PairPosteriors
    from latentalign.wordalign.estimation.learning import Report

_FOREIGN = 2 / 3  # of the words of a side unknown: another language
_ENOUGH = 20  # words to judge by


@dataclass(frozen=True)
class ParallelFiles:
    """Two files of sentences that can be read more than once."""

    source: Path
    target: Path

    def __iter__(self) -> "Iterator[Pair]":
        from latentalign.text.parallel import read_parallel

        return read_parallel(self.source, self.target)


@dataclass(frozen=True)
class Request:
    """What is asked of an aligner."""

    aligner: Path | None  # a saved one, to use, to update or to merge
    files: ParallelFiles | None
    output: Path | None
    save: Path | None
    update: bool
    merge: Path | None
    tokenise: bool
    null: float | None
    method: str
    threshold: float | None
    scores: bool
    processes: int
    most_counts: int | None = None

    def check(self) -> None:
        """Refuse what cannot be meant, before anything is read."""
        from latentalign.wordalign.decoding import check_method, check_threshold
        from latentalign.wordalign.folder import check_free

        check_method(self.method)
        check_threshold(self.threshold)
        if self.null is not None and not 0.0 < self.null < 1.0:
            raise UserError(f"--null: expected a probability above 0 and below 1, got {self.null:g}")
        most = 4 * (os.cpu_count() or 1)  # more only wait for each other, and each takes its memory
        if not 1 <= self.processes <= most:
            raise UserError(
                f"--processes: expected 1 to {most} (this machine has {os.cpu_count() or 1} processors), "
                f"got {self.processes}"
            )
        if self.most_counts is not None and self.most_counts < 1:
            raise UserError(f"--most-counts: expected at least 1, got {self.most_counts}")
        if self.most_counts is not None and self.aligner is not None:
            raise UserError(
                f"--most-counts: {self.aligner} was learnt with its own; leave it out or learn again"
            )
        if self.aligner is None and (self.update or self.merge is not None):
            raise UserError("--update and --merge go on from a saved aligner; name its folder first")
        if self.update and self.merge is not None:
            raise UserError("--update and --merge: expected one of them; merge first, then update")
        if (self.update or self.merge is not None) and self.save is None:
            raise UserError("--update and --merge: say with --save where the new aligner goes")
        if self.files is None and self.merge is None:
            raise UserError("align: expected --source FILE and --target FILE")
        if self.save is not None:
            check_free(self.save)
        if self.files is not None:
            outputs = {"--output": self.output, "--save": self.save}
            require_distinct(outputs, {"--source": self.files.source, "--target": self.files.target})


def align_by_aligner(request: Request) -> None:
    """Learn or load, save, align, write."""
    request.check()
    aligner = _aligner(request)
    if request.save is not None:
        aligner.save(request.save)
    if request.files is None:
        return
    if request.null is not None and request.aligner is not None:
        aligner = replace(aligner, settings=aligner.settings.model_copy(update={"null": request.null}))
    if request.aligner is not None:
        _check_language(aligner, request.files, request.aligner)
    with ExitStack() as stack:
        output = sys.stdout if request.output is None else stack.enter_context(open_atomic(request.output))
        for line in _rows(aligner.align(request.files), request):
            output.write(line)


def _aligner(request: Request) -> "Aligner":
    from latentalign.wordalign.aligner import Aligner
    from latentalign.wordalign.settings import Settings

    if request.aligner is None:
        assert request.files is not None
        given = {"null": request.null, "most_counts": request.most_counts}
        chosen = {name: value for name, value in given.items() if value is not None}
        settings = Settings.model_validate({"tokenise": request.tokenise, **chosen})
        with _progress() as report:
            return Aligner.fit(request.files, settings, processes=request.processes, report=report)
    aligner = Aligner.load(request.aligner)
    if request.tokenise and not aligner.settings.tokenise:
        raise UserError(
            f"--tokenise: {request.aligner} was learnt by white space; leave it out or learn again"
        )
    if request.merge is not None:
        return aligner.merge(Aligner.load(request.merge))
    if request.update:
        assert request.files is not None
        with _progress() as report:
            return aligner.update(request.files, processes=request.processes, report=report)
    return aligner


@contextmanager
def _progress() -> "Iterator[Report]":
    """A bar on stderr with the likelihood and the time left."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from latentalign.wordalign.estimation.learning import LearningStep

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[likelihood]}"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True))
    task = bar.add_task("", total=None, likelihood="")

    def report(learning: LearningStep) -> None:
        bar.start()  # not before: what is wrong with the files is told in one line
        likelihood = learning.log_likelihood
        shown = "" if likelihood is None else f"{likelihood:.3f} nats a word"
        bar.update(
            task, total=learning.total, completed=learning.done, description=learning.stage, likelihood=shown
        )

    try:
        yield report
    finally:
        if bar.live.is_started:
            bar.stop()


def _check_language(aligner: "Aligner", files: Iterable["Pair"], folder: Path) -> None:
    """Refuse files in other languages; also finds out about files that do not fit before anything is written."""
    words, unknown = [0, 0], [0, 0]
    for pair in files:
        for side, (text, index) in enumerate(zip(pair, aligner.known_words, strict=True)):
            units = aligner.units(text)
            words[side] += len(units)
            unknown[side] += sum(unit not in index for unit in units)
    for side, name in enumerate(("source", "target")):
        share = unknown[side] / max(1, words[side])
        if words[side] >= _ENOUGH and share > _FOREIGN:
            raise UserError(
                f"{folder}: {share:.0%} of the words of --{name} are unknown to this aligner; "
                "expected the languages it was learnt from, source and target not swapped"
            )
    if any(unknown):
        share = sum(unknown) / sum(words)
        print(
            f"latentalign: {sum(unknown)} of {sum(words)} words ({share:.1%}) are unknown; "
            "affixes, likeness and frequency stand in for them",
            file=sys.stderr,
        )


def _rows(pairs: "Iterable[PairPosteriors]", request: Request) -> Iterator[str]:
    from latentalign.text.links import format_links

    empty = skipped = 0
    for pair in pairs:
        skipped += pair.skipped
        empty += not pair.source_words or not pair.target_words
        links = pair.links(request.method, request.threshold)
        if request.scores:
            yield f"{format_links(links, probs=links)}\t{pair.score:.4f}\n"
        else:
            yield format_links(links) + "\n"
    if empty or skipped:
        print(
            f"latentalign: {empty} pairs with an empty side and {skipped} too long have no links",
            file=sys.stderr,
        )
