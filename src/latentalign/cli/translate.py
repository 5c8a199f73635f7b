"""`latentalign translate`: text in, text out, line for line and as it goes."""

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING

import typer

from latentalign.cli.options import DeviceOption
from latentalign.cli.progress import progress
from latentalign.errors import UserError
from latentalign.files import (
    SENTENCES,
    open_atomic,
    read_arriving,
    read_lines,
    require_distinct,
    require_file,
)

if TYPE_CHECKING:
    from latentalign.translation.beam.search import SearchOptions
    from latentalign.translation.translate import Translation, Translator
    from latentalign.wordalign.aligner import Aligner

WINDOW = 32  # batches that are read, sorted by length and translated together


def translate(
    runs: list[Path] = typer.Argument(
        ...,
        metavar="RUN…",
        help="Folder of a trained translation run; several together, by the mean of what they predict.",
    ),
    input: Path | None = typer.Option(
        None,
        "--input",
        "-i",
        help="Text, one sentence a line, plain or .gz; standard input unless given, or -.",
    ),
    output: Path | None = typer.Option(
        None, "--output", "-o", help="Where to write; standard output unless given."
    ),
    beam: int = typer.Option(10, help="Hypotheses kept a sentence; 1 is greedy."),
    inference: str | None = typer.Option(
        None, help="exact, kmax:K, sample:N or soft; as the run was trained unless given."
    ),
    n_best: int = typer.Option(1, "--n-best", help="Translations a sentence, as: line, rank, (score,) text."),
    scores: bool = typer.Option(False, "--scores", help="Put the score before each translation, and a tab."),
    alignments: Path | None = typer.Option(
        None, "--alignments", help="Also write links source-target of the output words, a line for a line."
    ),
    aligner: Path | None = typer.Option(
        None,
        "--aligner",
        help="A saved aligner that finds the links of --alignments; the run itself unless given.",
    ),
    length_penalty: float = typer.Option(1.0, help="α of the divisor ((5 + length) / 6)^α."),
    eos_penalty: float = typer.Option(
        0.5, help="Taken off the end of sentence, times source length / (length + 1); the paper has 3."
    ),
    max_length_factor: float = typer.Option(2.0, help="Longest output: this times the source length, + 10."),
    batch_size: int = typer.Option(64, help="Sentences searched at once."),
    seed: int = typer.Option(0, help="Of sampled inference."),
    device: DeviceOption = "auto",
) -> None:
    """Translate text line by line, with alignments on request. An empty line gives an empty line."""
    if (input is None or str(input) == "-") and sys.stdin is None:
        raise UserError("standard input is closed; give --input FILE")
    from latentalign.training.loop.evaluation import find_predictor
    from latentalign.training.trained_ensemble import load_together
    from latentalign.translation.beam.search import SearchOptions
    from latentalign.wordalign.aligner import Aligner

    if batch_size < 1:
        raise UserError(f"batch-size: expected a whole number of at least 1, got {batch_size}")
    options = SearchOptions(
        beam=beam,
        n_best=n_best,
        length_penalty=length_penalty,
        eos_penalty=eos_penalty,
        max_length_factor=max_length_factor,
    )
    if inference is not None:
        find_predictor(inference)  # before the model is loaded: a mistake should not cost seconds
    source = None if input is None or str(input) == "-" else require_file(input, SENTENCES)
    require_distinct({"--output": output, "--alignments": alignments}, {"--input": source})
    if aligner is not None and alignments is None:
        raise UserError("--aligner: say with --alignments FILE where its links go")
    if len(runs) > 1 and alignments is not None and aligner is None:
        raise UserError(
            "--alignments: several runs have no links of their own; name an aligner with --aligner"
        )
    finds_links = None if aligner is None else Aligner.load(aligner)
    loaded = load_together(runs, device=device)
    translator = loaded.translator(
        inference=inference, batch_size=batch_size, seed=seed, **dataclasses.asdict(options)
    )
    with ExitStack() as stack:
        text = sys.stdout if output is None else stack.enter_context(open_atomic(output))
        links = None if alignments is None else stack.enter_context(open_atomic(alignments))
        longest = max(run.config.data.max_length for run in getattr(loaded, "runs", [loaded]))
        _translate_all(translator, longest, source, text, links, finds_links, options=options, scores=scores)


def _translate_all(
    translator: "Translator",
    longest: int,
    source: Path | None,
    text: IO[str],
    links: IO[str] | None,
    aligner: "Aligner | None",
    *,
    options: "SearchOptions",
    scores: bool,
) -> None:
    from latentalign.text.links import format_links

    place = "standard input" if source is None else str(source)
    total = None if source is None or not sys.stderr.isatty() else sum(1 for _ in read_lines(source))
    number = done = unknown = 0
    with progress("translating", results_on_stdout=text is sys.stdout) as advance:

        def count(sentences: int) -> None:
            nonlocal done
            done += sentences
            advance(done, total)

        for window in _windows(source, WINDOW * translator.batch_size):
            unknown += _count_unknown(translator, window, longest, f"{place}, line", number)
            own_links = links is not None and aligner is None
            results = translator.translate(window, alignments=own_links, progress=count)
            for found in results:
                number += 1
                for rank, translation in enumerate(found, start=1):
                    text.write(_row(translation, number, rank, options.n_best, scores))
                    if links is not None and aligner is None:
                        links.write(format_links(translation.links(translator.links_by)) + "\n")
            if links is not None and aligner is not None:
                pairs = [
                    (line, one.text) for line, found in zip(window, results, strict=True) for one in found
                ]
                links.writelines(format_links(pair.links()) + "\n" for pair in aligner.align(pairs))
            text.flush()
    if unknown:
        print(f"latentalign: {place}: {unknown} pieces were never seen in training", file=sys.stderr)


def _row(translation: "Translation", number: int, rank: int, n_best: int, scores: bool) -> str:
    cells = [str(number), str(rank)] if n_best > 1 else []
    if scores:
        cells.append(f"{translation.score:.4f}")
    return "\t".join([*cells, translation.text]) + "\n"


def _count_unknown(translator: "Translator", window: list[str], longest: int, place: str, before: int) -> int:
    """Warn of lines longer than those of training; how many pieces are unknown comes back."""
    from latentalign.translation.data.tokenizer import UNKNOWN

    unknown = 0
    for number, line in enumerate(window, start=before + 1):
        found = translator.assets.source.encode(line)
        pieces, unknown = len(found), unknown + found.count(UNKNOWN)
        if pieces > longest:
            done = "translated all the same, but look at the result"
            if pieces > translator.longest:
                done = f"only the first {translator.longest} are translated; split it into sentences"
            print(
                f"latentalign: {place} {number}: {pieces} pieces, more than the {longest} of training; {done}",
                file=sys.stderr,
            )
    return unknown


def _windows(source: Path | None, size: int) -> Iterator[list[str]]:
    """The lines to translate, in groups; a pipe or terminal is answered as it speaks."""
    from latentalign.translation.translate import windows

    if source is not None:
        return windows(read_lines(source), size)
    return read_arriving(sys.stdin.fileno(), size)
