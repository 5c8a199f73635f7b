"""`latentalign align` and `latentalign aer`: word links out, and their measure against gold ones."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

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


def align(
    run: Path | None = typer.Argument(
        None,
        metavar="[RUN|ALIGNER]",
        help="Folder of a translation run or of a saved aligner; without one, an aligner learns from the pairs.",
    ),
    source: Path | None = typer.Option(None, "--source", help="Source sentences, one a line, plain or .gz."),
    target: Path | None = typer.Option(
        None, "--target", help="Their translations, one a line, plain or .gz."
    ),
    by: str | None = typer.Option(
        None,
        "--by",
        help="exact (posterior by Bayes' rule), posterior (inference network) or prior (attention); "
        "the first of these that the run has unless given.",
    ),
    path: bool = typer.Option(
        False,
        "--path",
        help="Links of the likeliest alignment of the whole pair (Viterbi's) instead of the best of each word.",
    ),
    scores: bool = typer.Option(
        False,
        "--scores",
        help="Links as i-j:0.93; then a tab and the mean log-probability per target piece: bad pairs last.",
    ),
    threshold: float | None = typer.Option(
        None,
        "--threshold",
        help="Every link of at least this probability; unless given, an aligner's own threshold, or the best of each "
        "target word by a run.",
    ),
    reverse: Path | None = typer.Option(None, "--with", help="A run of the reverse direction, to combine."),
    method: str | None = typer.Option(
        None,
        "--symmetrise",
        help="intersection, union or grow-diag-final-and of a run and --with; an aligner also takes mean (unless "
        "given), forward and backward.",
    ),
    save: Path | None = typer.Option(None, "--save", help="Keep the aligner in this folder."),
    update: bool = typer.Option(
        False, "--update", help="Go on learning from these pairs, on top of ALIGNER."
    ),
    merge: Path | None = typer.Option(None, "--merge", help="Another aligner, to be merged with ALIGNER."),
    tokenise: bool = typer.Option(
        False,
        "--tokenise",
        help="Learn by the built-in tokeniser: signs split off, scripts without spaces too.",
    ),
    null: float | None = typer.Option(
        None, "--null", help="How readily the aligner leaves words without a link, above 0 and below 1."
    ),
    most_counts: int | None = typer.Option(
        None,
        "--most-counts",
        help="Pairs of words whose counts are kept while learning: a bound of memory; the smallest counts go first.",
    ),
    processes: int = typer.Option(1, "--processes", help="Processes that learn the aligner."),
    output: Path | None = typer.Option(None, "--output", "-o", help="Standard output unless given."),
    device: DeviceOption = "auto",
) -> None:
    """Word alignments of sentence pairs, as source-target links from 0, with a probability on every link."""
    from latentalign.cli.aligner import ParallelFiles, Request, align_by_aligner
    from latentalign.wordalign.folder import is_aligner

    if run is None or is_aligner(run):
        if by is not None or path or reverse is not None:
            raise UserError(
                "--by, --path and --with are for translation runs; an aligner has both directions"
            )
        files = None if source is None and target is None else ParallelFiles(*_both(source, target))
        align_by_aligner(
            Request(run, files, output, save, update, merge, tokenise, null, method or "mean", threshold, scores,
                    processes, most_counts)
        )  # fmt: skip
        return
    for_aligners = (save, null, merge, most_counts)
    if update or tokenise or processes != 1 or any(option is not None for option in for_aligners):
        raise UserError(
            "--save, --update, --merge, --tokenise, --null, --most-counts and --processes are for aligners, "
            f"and {run} is none"
        )
    _check(reverse, method, threshold)
    by = _by_path(by, threshold, reverse) if path else by
    _align_by_run(run, *_both(source, target), by, path, scores, threshold, reverse, method, output, device)


def _both(source: Path | None, target: Path | None) -> tuple[Path, Path]:
    if source is None or target is None:
        raise UserError("align: expected --source FILE and --target FILE")
    return source, target


def _align_by_run(
    run: Path,
    source: Path,
    target: Path,
    by: str | None,
    path: bool,
    scores: bool,
    threshold: float | None,
    reverse: Path | None,
    method: str | None,
    output: Path | None,
    device: str,
) -> None:
    from latentalign.training.trained_run import load
    from latentalign.translation.config import PairFiles
    from latentalign.translation.data.corpus import read_pairs

    require_distinct({"--output": output}, {"--source": source, "--target": target})
    files = PairFiles(source=str(source), target=str(target))
    # a file that is cut short should not be found out after half of the output
    total = sum(1 for _ in read_pairs(files))
    loaded = load(run, device=device)
    chosen = loaded.choose_links(by)
    asked = {"exact": chosen == "exact", "score": scores}
    aligner = loaded.aligner()
    forward = aligner.align(read_pairs(files), **asked)
    backward: Iterable[PairAlignment | None] = _nothing()
    back_by = chosen
    if reverse is not None:
        other = load(reverse, device=device)
        _warn_of_same_direction(loaded, other)
        back_by = other.choose_links(by)
        asked = {"exact": back_by == "exact", "score": scores}
        backward = other.aligner().align(((right, left) for left, right in read_pairs(files)), **asked)
    with ExitStack() as stack:
        stream = sys.stdout if output is None else stack.enter_context(open_atomic(output))
        advance = stack.enter_context(progress("aligning", results_on_stdout=output is None))
        for number, (one, two) in enumerate(zip(forward, backward, strict=False), start=1):
            advance(number, total)
            if one.too_long:
                print(
                    f"latentalign: {source}, line {number}: a side has more than {aligner.longest} pieces; no links",
                    file=sys.stderr,
                )
            if path:
                links = one.path_links()
            else:
                back = None if two is None else two.probs(back_by)
                links = _decode(one.probs(chosen), back, method, threshold)
            stream.write(_row(links, _mean_score(one, two) if scores else None))


def _by_path(by: str | None, threshold: float | None, reverse: Path | None) -> str:
    """A path is one alignment under the exact posterior: nothing else goes with it."""
    if by not in (None, "exact") or threshold is not None or reverse is not None:
        raise UserError(
            "--path: takes the exact posterior's best path; leave --by, --threshold and --with out"
        )
    return "exact"


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


def _nothing() -> Iterator[None]:
    while True:
        yield None


def _check(reverse: Path | None, method: str | None, threshold: float | None) -> None:
    from latentalign.text.symmetrise import symmetrisation

    if (reverse is None) != (method is None):
        raise UserError("two directions need both --with RUN_OF_THE_REVERSE and --symmetrise METHOD")
    if method is not None:
        symmetrisation(method)
    if threshold is not None and not 0.0 < threshold <= 1.0:
        raise UserError(f"threshold: expected a probability above 0 and up to 1, got {threshold}")


def _decode(
    forward: "np.ndarray", backward: "np.ndarray | None", method: str | None, threshold: float | None
) -> dict[tuple[int, int], float]:
    from latentalign.text.symmetrise import decode_links, symmetrise

    if backward is None or method is None:
        return decode_links(forward, threshold=threshold)
    return symmetrise(forward, backward, method, threshold=threshold)


def _mean_score(one: "PairAlignment", two: "PairAlignment | None") -> float:
    found = [pair.score for pair in (one, two) if pair is not None and pair.score is not None]
    return sum(found) / len(found)


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
