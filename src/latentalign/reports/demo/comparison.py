"""The demonstration: a generated corpus, soft and variational attention and an aligner trained on it, all measured."""

import json
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from latentalign.errors import UserError
from latentalign.task import Log
from latentalign.text.links import Link, Links, score_links
from latentalign.text.parallel import read_parallel
from latentalign.text.symmetrise import decode_links
from latentalign.training.run.journal import read_metrics
from latentalign.training.trained_run import load
from latentalign.translation.align import PairAlignment
from latentalign.translation.bleu import score_texts
from latentalign.translation.generated.corpus import Example, write_corpus
from latentalign.wordalign.aligner import Aligner

RECIPES = {"soft": "demo", "variational": "demo-variational"}
PICTURES = 3  # pairs shown as heat maps
SAMPLES = 8  # sentences shown with both translations


@dataclass(frozen=True)
class DemoSize:
    """How large the demonstration is; `settings` change both recipes, as --set does for `train`."""

    train: int = 5000
    valid: int = 500
    test: int = 500
    seed: int = 1
    beam: int = 10
    settings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("train", "valid", "test"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}: expected at least one sentence pair, got {getattr(self, name)}")


@dataclass(frozen=True)
class Measures:
    """What is compared; lower is better for all but BLEU and chrF."""

    ppl: float
    nll: float
    bleu: float
    chrf: float
    prior_entropy: float
    aer_prior: float
    aer_exact: float
    aer_posterior: float | None
    elbo: float | None
    kl: float | None
    training_seconds: float


@dataclass(frozen=True)
class Outcome:
    """One trained model: its measures, translations and alignments of the test set."""

    measures: Measures
    translations: list[str]
    alignments: list[PairAlignment]
    curve: list[dict[str, Any]]
    bleu_signature: str


@dataclass(frozen=True)
class AlignerOutcome:
    """What the aligner learnt from the same training pairs, without a translator."""

    aer: float
    aer_together: float  # the mean of its probabilities and of the variational model's exact posterior
    seconds: float  # to learn, and to align the test set
    probs: list[np.ndarray]  # of the test pairs


@dataclass(frozen=True)
class Demo:
    """Everything that the report shows."""

    size: DemoSize
    test: list[Example]
    outcomes: dict[str, Outcome]
    aligner: AlignerOutcome
    seconds: float
    steps: dict[str, float] = field(default_factory=dict)  # seconds of every part

    def to_dict(self) -> dict[str, Any]:
        models = {name: asdict(outcome.measures) for name, outcome in self.outcomes.items()}
        aligner = {
            "aer": self.aligner.aer,
            "aer_together": self.aligner.aer_together,
            "seconds": self.aligner.seconds,
        }
        return {
            "corpus": "generated",
            "test_pairs": len(self.test),
            "seconds": self.seconds,
            **models,
            "aligner": aligner,
        }


def run_demo(folder: Path, size: DemoSize, *, log: Log) -> Demo:
    """Generate, learn an aligner, train both models side by side, translate, align and measure."""
    started = time.perf_counter()
    steps: dict[str, float] = {}

    def finished(name: str) -> None:
        steps[name] = time.perf_counter() - started - sum(steps.values())
        log(f"{name}: {steps[name]:.0f} s")

    sizes = {"train": size.train, "valid": size.valid, "test": size.test}
    log(
        f"generating a corpus of {sum(sizes.values())} sentence pairs with gold alignments in {folder / 'data'}"
    )
    splits = write_corpus(folder / "data", sizes=sizes, seed=size.seed)
    finished("generate")
    aligner, seconds = learn_aligner(folder)
    finished("aligner")
    test = splits["test"]
    outcomes: dict[str, Outcome] = {}
    for name in train_side_by_side(folder, size, log=log):
        outcomes[name] = _measure(folder, name, test, size)
    by_aligner = measure_aligner(aligner, seconds, test, outcomes["variational"])
    finished("train, translate, align and measure")
    return Demo(size, test, outcomes, by_aligner, time.perf_counter() - started, steps)


def learn_aligner(folder: Path) -> tuple[Aligner, float]:
    """An aligner from the training pairs alone, saved beside the runs, and the seconds it took."""
    started = time.perf_counter()
    pairs = list(read_parallel(folder / "data" / "train.de", folder / "data" / "train.en"))
    aligner = Aligner.fit(pairs)
    aligner.save(folder / "runs" / "aligner")
    return aligner, time.perf_counter() - started


def measure_aligner(
    aligner: Aligner, seconds: float, test: Sequence[Example], translator: Outcome
) -> AlignerOutcome:
    """Its links of the test set, which it has not learnt from, alone and together with a translator's."""
    started = time.perf_counter()
    found = list(aligner.align((example.source, example.target) for example in test))
    seconds += time.perf_counter() - started
    means = [
        (one.probs + other.probs("exact")) / 2
        for one, other in zip(found, translator.alignments, strict=True)
    ]
    return AlignerOutcome(
        aer=_link_error([frozenset(pair.links()) for pair in found], test),
        aer_together=_link_error([frozenset(decode_links(mean, threshold=0.5)) for mean in means], test),
        seconds=seconds,
        probs=[pair.probs for pair in found],
    )


def train_side_by_side(folder: Path, size: DemoSize, *, log: Log) -> Iterator[str]:
    """Train every model in a process of its own with one thread: as fast as one after the other with two.

    Yields the name of each as soon as it is trained, so that it is measured while the other still learns.
    """
    running = [_Training(name, folder, size, log) for name in RECIPES]
    try:
        for training in running:
            if training.wait() != 0:
                raise UserError(
                    f"demo: training of the {training.name} model failed: {training.last_line}; "
                    f"see {folder / 'runs' / training.name}"
                )
            yield training.name
    finally:
        for training in running:
            training.stop()


class _Training:
    """A `latentalign train` process whose log lines are printed under its name."""

    def __init__(self, name: str, folder: Path, size: DemoSize, log: Log) -> None:
        self.name = name
        settings = [f"data.folder={json.dumps(str(folder / 'data'))}", "training.threads=1", *size.settings]
        command = [sys.executable, "-m", "latentalign", "train", RECIPES[name]]
        command += ["--out", str(folder / "runs" / name), "--overwrite"]
        command += [word for setting in settings for word in ("--set", setting)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        )
        self.lines: deque[str] = deque(maxlen=1)
        self.reader = threading.Thread(target=self._forward, args=(log,), daemon=True)
        self.reader.start()

    def _forward(self, log: Log) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            for line in stream:
                if line.strip():
                    self.lines.append(line.strip())
                    log(f"[{self.name}] {line.rstrip()}")

    @property
    def last_line(self) -> str:
        return self.lines[-1] if self.lines else "it said nothing"

    def wait(self) -> int:
        code = self.process.wait()
        self.reader.join()
        return code

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait()


def _measure(folder: Path, name: str, test: Sequence[Example], size: DemoSize) -> Outcome:
    run = load(folder / "runs" / name)
    results = run.evaluate(source=folder / "data" / "test.de", target=folder / "data" / "test.en")
    translator = run.translator(beam=size.beam, inference=results["inference"])
    translations = [row[0].text for row in translator.translate([example.source for example in test])]
    scores = score_texts(translations, [example.target for example in test])
    aligner = run.aligner()
    alignments = list(aligner.align([(example.source, example.target) for example in test], exact=True))
    curve = read_metrics(run.folder / "metrics.jsonl")
    measures = Measures(
        ppl=results["ppl"],
        nll=results["nll"],
        bleu=scores["bleu"],
        chrf=scores["chrf"],
        prior_entropy=results["prior_entropy"],
        aer_prior=error_rate([found.prior for found in alignments], test),
        aer_exact=error_rate([found.probs("exact") for found in alignments], test),
        aer_posterior=(
            error_rate([found.probs("posterior") for found in alignments], test)
            if aligner.has_posterior
            else None
        ),
        elbo=results.get("elbo"),
        kl=results.get("kl"),
        training_seconds=curve[-1].get("training_seconds", 0.0) if curve else 0.0,
    )
    return Outcome(measures, translations, alignments, curve, scores["bleu_signature"])


def error_rate(matrices: Sequence[np.ndarray], test: Sequence[Example]) -> float:
    """AER of arg-max links against the gold ones."""
    return _link_error([frozenset(decode_links(matrix)) for matrix in matrices], test)


def _link_error(found: Sequence[frozenset[Link]], test: Sequence[Example]) -> float:
    gold = [Links(frozenset(example.links)) for example in test]
    return score_links([Links(links) for links in found], gold).aer


COLUMNS: Mapping[str, tuple[str, str]] = {
    "ppl": ("PPL", "{:.3f}"),
    "bleu": ("BLEU", "{:.2f}"),
    "chrf": ("chrF", "{:.2f}"),
    "aer_prior": ("AER prior", "{:.3f}"),
    "aer_posterior": ("AER posterior", "{:.3f}"),
    "aer_exact": ("AER by Bayes", "{:.3f}"),
    "prior_entropy": ("prior entropy", "{:.3f}"),
    "kl": ("KL", "{:.3f}"),
    "training_seconds": ("training s", "{:.0f}"),
}


def rows(demo: Demo) -> list[list[str]]:
    """The comparison as text cells, a header first."""
    table = [["links by", *(title for title, _ in COLUMNS.values())]]
    for name, outcome in demo.outcomes.items():
        values = asdict(outcome.measures)
        cells = [
            "–" if values[key] is None else form.format(values[key]) for key, (_, form) in COLUMNS.items()
        ]
        table.append([name, *cells])
    aligner = {"aer_exact": demo.aligner.aer, "training_seconds": demo.aligner.seconds}
    together = {"aer_exact": demo.aligner.aer_together}
    for name, known in (("aligner", aligner), ("variational + aligner", together)):
        cells = [form.format(known[key]) if key in known else "–" for key, (_, form) in COLUMNS.items()]
        table.append([name, *cells])
    return table


def summary(demo: Demo) -> str:
    """The comparison as a plain table."""
    table = rows(demo)
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    lines = [
        "  ".join(cell.ljust(width) if n == 0 else cell.rjust(width) for n, (cell, width) in enumerate(cells))
        for cells in (list(zip(row, widths, strict=True)) for row in table)
    ]
    return "\n".join(lines)
