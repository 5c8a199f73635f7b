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
    from latentalign.cli.align import Align
    from latentalign.text.parallel import Pair
    from latentalign.wordalign.aligner import Aligner
    from latentalign.wordalign.decoding import PairPosteriors
    from latentalign.wordalign.estimation.expectation_maximisation import Report

_FOREIGN = 2 / 3  # of the words of a side unknown: another language
_ENOUGH = 20  # words to judge by
BOTH = "mean"  # of both directions: how links are chosen unless another way is named


@dataclass(frozen=True)
class ParallelFiles:
    """Two files of sentences that can be read more than once."""

    source: Path
    target: Path

    def __iter__(self) -> "Iterator[Pair]":
        from latentalign.text.parallel import read_parallel

        return read_parallel(self.source, self.target)


def align_by_aligner(asked: "Align", files: ParallelFiles | None) -> None:
    """Learn or load, save, align, write; the run that is named, if one is, is an aligner."""
    _check(asked, files)
    aligner = _aligner(asked, files)
    if asked.save is not None:
        aligner.save(asked.save)
    if files is None:
        return
    if asked.null is not None and asked.run is not None:
        aligner = replace(aligner, settings=aligner.settings.model_copy(update={"null": asked.null}))
    if asked.run is not None:
        _check_language(aligner, files, asked.run)
    with ExitStack() as stack:
        output = sys.stdout if asked.output is None else stack.enter_context(open_atomic(asked.output))
        for line in _rows(aligner.align(files), asked):
            output.write(line)


def _check(asked: "Align", files: ParallelFiles | None) -> None:
    """Refuse what cannot be meant, before anything is read."""
    from latentalign.wordalign.decoding import check_method, check_threshold
    from latentalign.wordalign.folder import check_free

    check_method(asked.method or BOTH)
    check_threshold(asked.threshold)
    if asked.null is not None and not 0.0 < asked.null < 1.0:
        raise UserError(f"--null: expected a probability above 0 and below 1, got {asked.null:g}")
    most = 4 * (os.cpu_count() or 1)  # more only wait for each other, and each takes its memory
    if not 1 <= asked.processes <= most:
        raise UserError(
            f"--processes: expected 1 to {most} (this machine has {os.cpu_count() or 1} processors), "
            f"got {asked.processes}"
        )
    if asked.most_counts is not None and asked.most_counts < 1:
        raise UserError(f"--most-counts: expected at least 1, got {asked.most_counts}")
    if asked.most_counts is not None and asked.run is not None:
        raise UserError(f"--most-counts: {asked.run} was learnt with its own; leave it out or learn again")
    if asked.run is None and (asked.update or asked.merge is not None):
        raise UserError("--update and --merge go on from a saved aligner; name its folder first")
    if asked.update and asked.merge is not None:
        raise UserError("--update and --merge: expected one of them; merge first, then update")
    if (asked.update or asked.merge is not None) and asked.save is None:
        raise UserError("--update and --merge: say with --save where the new aligner goes")
    if files is None and asked.merge is None:
        raise UserError("align: expected --source FILE and --target FILE")
    if asked.save is not None:
        check_free(asked.save)
    if files is not None:
        outputs = {"--output": asked.output, "--save": asked.save}
        require_distinct(outputs, {"--source": files.source, "--target": files.target})


def _aligner(asked: "Align", files: ParallelFiles | None) -> "Aligner":
    from latentalign.wordalign.aligner import Aligner
    from latentalign.wordalign.settings import Settings

    if asked.run is None:
        assert files is not None
        given = {"null": asked.null, "most_counts": asked.most_counts}
        chosen = {name: value for name, value in given.items() if value is not None}
        settings = Settings.model_validate({"tokenise": asked.tokenise, **chosen})
        with _progress() as report:
            return Aligner.fit(files, settings, processes=asked.processes, report=report)
    aligner = Aligner.load(asked.run)
    if asked.tokenise and not aligner.settings.tokenise:
        raise UserError(f"--tokenise: {asked.run} was learnt by white space; leave it out or learn again")
    if asked.merge is not None:
        return aligner.merge(Aligner.load(asked.merge))
    if asked.update:
        assert files is not None
        with _progress() as report:
            return aligner.update(files, processes=asked.processes, report=report)
    return aligner


@contextmanager
def _progress() -> "Iterator[Report]":
    """A bar on stderr with the likelihood and the time left."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from latentalign.wordalign.estimation.expectation_maximisation import LearningStep

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[likelihood]}"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True))
    task = bar.add_task("", total=None, likelihood="")

    def report(learning: LearningStep) -> None:
        bar.start()  # not before: a mistake in the files is reported in one line
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


def _rows(pairs: "Iterable[PairPosteriors]", asked: "Align") -> Iterator[str]:
    from latentalign.text.links import format_links

    empty = skipped = 0
    for pair in pairs:
        skipped += pair.skipped
        empty += not pair.source_words or not pair.target_words
        links = pair.links(asked.method or BOTH, asked.threshold)
        if asked.scores:
            yield f"{format_links(links, probs=links)}\t{pair.score:.4f}\n"
        else:
            yield format_links(links) + "\n"
    if empty or skipped:
        print(
            f"latentalign: {empty} pairs with an empty side and {skipped} too long have no links",
            file=sys.stderr,
        )
