"""`latentalign translate`: text in, text out, line for line and as it goes."""

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

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


@dataclass(frozen=True)
class Translate:
    """Translate text line by line, with alignments on request. An empty line gives an empty line."""

    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN…",
            help="Folder of a trained translation run; several together, by the mean of what they predict.",
        ),
    ]
    input: Annotated[
        Path | None,
        typer.Option(
            "--input",
            "-i",
            help="Text, one sentence a line, plain or .gz; standard input unless given, or -.",
        ),
    ] = None
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write; standard output unless given.")
    ] = None
    beam: Annotated[int, typer.Option(help="Hypotheses kept a sentence; 1 is greedy.")] = 10
    inference: Annotated[
        str | None, typer.Option(help="exact, kmax:K, sample:N or soft; as the run was trained unless given.")
    ] = None
    n_best: Annotated[
        int, typer.Option("--n-best", help="Translations a sentence, as: line, rank, (score,) text.")
    ] = 1
    scores: Annotated[
        bool, typer.Option("--scores", help="Put the score before each translation, and a tab.")
    ] = False
    alignments: Annotated[
        Path | None,
        typer.Option(
            "--alignments", help="Also write links source-target of the output words, a line for a line."
        ),
    ] = None
    aligner: Annotated[
        Path | None,
        typer.Option(
            "--aligner",
            help="A saved aligner that finds the links of --alignments; the run itself unless given.",
        ),
    ] = None
    length_penalty: Annotated[float, typer.Option(help="α of the divisor ((5 + length) / 6)^α.")] = 1.0
    eos_penalty: Annotated[
        float,
        typer.Option(
            help="Taken off the end of sentence, times source length / (length + 1); the paper has 3."
        ),
    ] = 0.5
    max_length_factor: Annotated[
        float, typer.Option(help="Longest output: this times the source length, + 10.")
    ] = 2.0
    batch_size: Annotated[int, typer.Option(help="Sentences searched at once.")] = 64
    seed: Annotated[int, typer.Option(help="Of sampled inference.")] = 0
    device: DeviceOption = "auto"

    def __call__(self) -> None:
        from latentalign.training.trained_ensemble import load_together
        from latentalign.wordalign.aligner import Aligner

        search = self._search()
        source = self._source()
        self._check_links()
        aligner = None if self.aligner is None else Aligner.load(self.aligner)
        loaded = load_together(self.runs, device=self.device)
        translator = loaded.translator(
            inference=self.inference, batch_size=self.batch_size, seed=self.seed, **dataclasses.asdict(search)
        )
        with ExitStack() as stack:
            text = sys.stdout if self.output is None else stack.enter_context(open_atomic(self.output))
            links = None if self.alignments is None else stack.enter_context(open_atomic(self.alignments))
            data: list[Any] = [run.config.data for run in loaded.runs]
            longest = max(one.max_length for one in data)
            self._translate_all(_Translating(translator, longest, source, text, links, aligner))

    def _search(self) -> "SearchOptions":
        """The options of the search; a mistake should not cost the seconds in which a model is loaded."""
        from latentalign.training.loop.evaluation import find_predictor
        from latentalign.translation.beam.search import SearchOptions

        if self.batch_size < 1:
            raise UserError(f"batch-size: expected a whole number of at least 1, got {self.batch_size}")
        if self.inference is not None:
            find_predictor(self.inference)
        return SearchOptions(
            beam=self.beam,
            n_best=self.n_best,
            length_penalty=self.length_penalty,
            eos_penalty=self.eos_penalty,
            max_length_factor=self.max_length_factor,
        )

    def _source(self) -> Path | None:
        """The file of sentences; None for standard input."""
        if self.input is None or str(self.input) == "-":
            if sys.stdin is None:
                raise UserError("standard input is closed; give --input FILE")
            source = None
        else:
            source = require_file(self.input, SENTENCES)
        require_distinct({"--output": self.output, "--alignments": self.alignments}, {"--input": source})
        return source

    def _check_links(self) -> None:
        if self.aligner is not None and self.alignments is None:
            raise UserError("--aligner: say with --alignments FILE where its links go")
        if len(self.runs) > 1 and self.alignments is not None and self.aligner is None:
            raise UserError(
                "--alignments: several runs have no links of their own; name an aligner with --aligner"
            )

    def _translate_all(self, work: "_Translating") -> None:
        total = (
            None
            if work.source is None or not sys.stderr.isatty()
            else sum(1 for _ in read_lines(work.source))
        )
        number = done = unknown = 0
        with progress("translating", results_on_stdout=work.text is sys.stdout) as advance:

            def count(sentences: int) -> None:
                nonlocal done
                done += sentences
                advance(done, total)

            for window in _windows(work.source, WINDOW * work.translator.batch_size):
                unknown += _count_unknown(
                    work.translator, window, work.longest, f"{work.place}, line", number
                )
                results = work.translator.translate(window, alignments=work.has_own_links, progress=count)
                for found in results:
                    number += 1
                    for rank, translation in enumerate(found, start=1):
                        work.text.write(_row(translation, number, rank, self.n_best, self.scores))
                work.write_links(window, results)
                work.text.flush()
        if unknown:
            print(f"latentalign: {work.place}: {unknown} pieces were never seen in training", file=sys.stderr)


@dataclass(frozen=True)
class _Translating:
    """What translates, from where, and where to."""

    translator: "Translator"
    longest: int  # sentence of the training
    source: Path | None
    text: IO[str]
    links: IO[str] | None
    aligner: "Aligner | None"

    @property
    def place(self) -> str:
        return "standard input" if self.source is None else str(self.source)

    @property
    def has_own_links(self) -> bool:
        """Whether links are asked of the run itself."""
        return self.links is not None and self.aligner is None

    def write_links(self, lines: list[str], results: "list[list[Translation]]") -> None:
        """A row of links for each row of text."""
        from latentalign.text.links import format_links

        if self.links is None:
            return
        if self.aligner is None:
            rows = (one.links(self.translator.links_by) for found in results for one in found)
        else:
            pairs = [(line, one.text) for line, found in zip(lines, results, strict=True) for one in found]
            rows = (pair.links() for pair in self.aligner.align(pairs))
        self.links.writelines(format_links(links) + "\n" for links in rows)


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
        found = translator.assets.source_pieces(line)
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
