"""`latentalign align` and `latentalign aer`: word links out, and their measure against gold ones."""

import itertools
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from latentalign.cli.options import DeviceOption
from latentalign.cli.progress import progress
from latentalign.errors import UserError
from latentalign.files import open_atomic, require_distinct, to_json

if TYPE_CHECKING:
    import numpy as np

    from latentalign.text.links import Links
    from latentalign.training.trained_run import Run
    from latentalign.translation.align import PairAlignment
    from latentalign.translation.data.tokenizer import Tokenizer


@dataclass(frozen=True)
class Align:
    """Word alignments of sentence pairs, as source-target links from 0, with a probability on every link."""

    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="[RUN|ALIGNER]",
            help="Folder of a translation run or of a saved aligner; without one, an aligner learns from the pairs.",
        ),
    ] = None
    source: Annotated[
        Path | None, typer.Option("--source", help="Source sentences, one a line, plain or .gz.")
    ] = None
    target: Annotated[
        Path | None, typer.Option("--target", help="Their translations, one a line, plain or .gz.")
    ] = None
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            help="exact (posterior by Bayes' rule), posterior (inference network) or prior (attention); "
            "the first of these that the run has unless given.",
        ),
    ] = None
    path: Annotated[
        bool,
        typer.Option(
            "--path",
            help="Links of the likeliest alignment of the whole pair (Viterbi's) instead of the best of each word.",
        ),
    ] = False
    scores: Annotated[
        bool,
        typer.Option(
            "--scores",
            help="Links as i-j:0.93; then a tab and the mean log-probability per target piece: bad pairs last.",
        ),
    ] = False
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold",
            help="Every link of at least this probability; unless given, an aligner's own threshold, or the best of "
            "each target word by a run.",
        ),
    ] = None
    reverse: Annotated[
        Path | None, typer.Option("--with", help="A run of the reverse direction, to combine.")
    ] = None
    method: Annotated[
        str | None,
        typer.Option(
            "--symmetrise",
            help="intersection, union or grow-diag-final-and of a run and --with; an aligner also takes mean (unless "
            "given), forward and backward.",
        ),
    ] = None
    save: Annotated[Path | None, typer.Option("--save", help="Keep the aligner in this folder.")] = None
    update: Annotated[
        bool, typer.Option("--update", help="Go on learning from these pairs, on top of ALIGNER.")
    ] = False
    merge: Annotated[
        Path | None, typer.Option("--merge", help="Another aligner, to be merged with ALIGNER.")
    ] = None
    tokenise: Annotated[
        bool,
        typer.Option(
            "--tokenise", help="Learn by the built-in tokeniser: signs split off, scripts without spaces too."
        ),
    ] = False
    null: Annotated[
        float | None,
        typer.Option(
            "--null", help="How readily the aligner leaves words without a link, above 0 and below 1."
        ),
    ] = None
    most_counts: Annotated[
        int | None,
        typer.Option(
            "--most-counts",
            help="Pairs of words whose counts are kept while learning: a bound of memory; the smallest counts go "
            "first.",
        ),
    ] = None
    processes: Annotated[int, typer.Option("--processes", help="Processes that learn the aligner.")] = 1
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Standard output unless given.")] = (
        None
    )
    device: DeviceOption = "auto"

    def __call__(self) -> None:
        from latentalign.cli.aligner import ParallelFiles, align_by_aligner
        from latentalign.wordalign.folder import is_aligner

        if self.run is None or is_aligner(self.run):
            if self.by is not None or self.path or self.reverse is not None:
                raise UserError(
                    "--by, --path and --with are for translation runs; an aligner has both directions"
                )
            has_files = self.source is not None or self.target is not None
            align_by_aligner(self, ParallelFiles(*self._files()) if has_files else None)
        else:
            self._check_for_run(self.run)
            self._align_by_run(self.run, *self._files())

    def _files(self) -> tuple[Path, Path]:
        if self.source is None or self.target is None:
            raise UserError("align: expected --source FILE and --target FILE")
        return self.source, self.target

    def _check_for_run(self, run: Path) -> None:
        """Refuse options that do not go with a run or with each other, before anything is loaded."""
        from latentalign.text.symmetrise import symmetrisation

        given = (
            self.save,
            self.null,
            self.merge,
            self.most_counts,
            self.update or None,
            self.tokenise or None,
        )
        if self.processes != 1 or any(option is not None for option in given):
            raise UserError(
                "--save, --update, --merge, --tokenise, --null, --most-counts and --processes are for aligners, "
                f"and {run} is none"
            )
        if (self.reverse is None) != (self.method is None):
            raise UserError("two directions need both --with RUN_OF_THE_REVERSE and --symmetrise METHOD")
        if self.method is not None:
            symmetrisation(self.method)
        if self.threshold is not None and not 0.0 < self.threshold <= 1.0:
            raise UserError(f"threshold: expected a probability above 0 and up to 1, got {self.threshold}")
        others = self.threshold is not None or self.reverse is not None
        if self.path and (others or self.by not in (None, "exact")):
            raise UserError(
                "--path: takes the exact posterior's best path; leave --by, --threshold and --with out"
            )

    def _align_by_run(self, run: Path, source: Path, target: Path) -> None:
        from latentalign.training.trained_run import load
        from latentalign.translation.config import PairFiles
        from latentalign.translation.data.corpus import read_pairs

        require_distinct({"--output": self.output}, {"--source": source, "--target": target})
        files = PairFiles(source=str(source), target=str(target))
        # a file that is cut short should not be found out after half of the output
        total = sum(1 for _ in read_pairs(files))
        loaded = load(run, device=self.device)
        forward = self._align_pairs(loaded, read_pairs(files))
        backward: Iterable[_Found | None] = itertools.repeat(None)
        if self.reverse is not None:
            other = load(self.reverse, device=self.device)
            _warn_of_same_direction(loaded, other)
            backward = self._align_pairs(other, ((right, left) for left, right in read_pairs(files)))
        longest = loaded.aligner().longest
        with ExitStack() as stack:
            stream = sys.stdout if self.output is None else stack.enter_context(open_atomic(self.output))
            advance = stack.enter_context(progress("aligning", results_on_stdout=self.output is None))
            for number, (one, two) in enumerate(zip(forward, backward, strict=False), start=1):
                advance(number, total)
                if one.pair.too_long:
                    print(
                        f"latentalign: {source}, line {number}: a side has more than {longest} pieces; no links",
                        file=sys.stderr,
                    )
                stream.write(_row(self._links(one, two), _mean_score(one, two) if self.scores else None))

    def _align_pairs(self, run: "Run", pairs: Iterable[tuple[str, str]]) -> "Iterator[_Found]":
        by = run.choose_links("exact" if self.path else self.by)
        found = run.aligner().align(pairs, exact=by == "exact", score=self.scores)
        return (_Found(pair, pair.probs(by)) for pair in found)

    def _links(self, one: "_Found", two: "_Found | None") -> dict[tuple[int, int], float]:
        from latentalign.text.symmetrise import decode_links, symmetrise

        if self.path:
            return one.pair.path_links()
        if two is None or self.method is None:
            return decode_links(one.probs, threshold=self.threshold)
        return symmetrise(one.probs, two.probs, self.method, threshold=self.threshold)


class _Found(NamedTuple):
    """What a run finds in a pair, and the matrix that links come from."""

    pair: "PairAlignment"
    probs: "np.ndarray"


def _warn_of_same_direction(run: "Run", reverse: "Run") -> None:
    """A run of the same direction would be asked for what it never learnt; its vocabularies give it away."""
    mine, theirs = run.assets, reverse.assets
    same = _overlap(mine.source, theirs.source) + _overlap(mine.target, theirs.target)
    crossed = _overlap(mine.source, theirs.target) + _overlap(mine.target, theirs.source)
    if same > crossed:
        print(
            f"latentalign: warning: --with {reverse.folder}: its vocabularies look like those of the same direction; "
            "expected a run that translates the other way round",
            file=sys.stderr,
        )


def _overlap(one: "Tokenizer", other: "Tokenizer") -> float:
    pieces, others = set(one.pieces), set(other.pieces)
    return len(pieces & others) / max(len(pieces | others), 1)


def _mean_score(one: _Found, two: _Found | None) -> float:
    scores = [found.pair.score for found in (one, two) if found is not None and found.pair.score is not None]
    return sum(scores) / len(scores)


def _row(links: dict[tuple[int, int], float], score: float | None) -> str:
    from latentalign.text.links import format_links

    if score is None:
        return format_links(links) + "\n"
    return f"{format_links(links, probs=links)}\t{score:.4f}\n"


def aer(
    gold: Path = typer.Option(..., "--gold", help="Gold links: i-j sure, i?j possible."),
    predicted: Path = typer.Option(..., "--predicted", help="Links to measure, as `align` writes them."),
    source: Path | None = typer.Option(None, "--source", help="The source sentences, to check the links."),
    target: Path | None = typer.Option(None, "--target", help="The target sentences, to check the links."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Alignment error rate of links against a gold standard, with precision and recall."""
    from latentalign.text.links import read_links, score_links

    if (source is None) != (target is None):
        raise UserError("checking links against their sentences needs both --source and --target")
    known, found = list(read_links(gold)), list(read_links(predicted))
    if len(known) != len(found):
        raise UserError(
            f"{gold} has {len(known)} lines but {predicted} has {len(found)}; expected the same pairs in both"
        )
    if not known:
        raise UserError(f"{gold}: no lines; expected the links of one pair a line")
    if source is not None and target is not None:
        _check_against_sentences({gold: known, predicted: found}, source, target)
    rate = score_links(found, known)
    shown = {"aer": rate.aer, "precision": rate.precision, "recall": rate.recall}
    counts = {"pairs": len(known), "predicted": rate.predicted, "sure": rate.sure, "possible": rate.possible}
    if as_json:
        print(to_json({**shown, **counts}))
    else:
        print("  ".join(f"{name} {value:.4f}" for name, value in shown.items()))
        print("  ".join(f"{name} {value}" for name, value in counts.items()))


def _check_against_sentences(files: "dict[Path, list[Links]]", source: Path, target: Path) -> None:
    from latentalign.text.links import check_links
    from latentalign.translation.config import PairFiles
    from latentalign.translation.data.corpus import read_pairs

    sentences = list(read_pairs(PairFiles(source=str(source), target=str(target))))
    for path, links in files.items():
        if len(links) != len(sentences):
            raise UserError(
                f"{path} has {len(links)} lines but {source} has {len(sentences)}; expected as many"
            )
        for number, (one, (left, right)) in enumerate(zip(links, sentences, strict=True), start=1):
            check_links(one, len(left.split()), len(right.split()), place=f"{path}, line {number}")
