"""The aligner beside eflomal and fast_align: python -m benchmarks.wordalign --data DIR [--peers VENV] [--out FOLDER]

DIR has europarl20k.{de,en}.gz and dev.{de,en,gold}. VENV has eflomal and systran-align installed. Every system reads
the same files; CPU seconds are of one process with one thread, from its start to its last link of all pairs. With
--translator RUN --multi30k DIR pairs are also filtered beside a translator of Multi30k. Parts that are finished are
kept in the folder of work, so that a run that was interrupted goes on where it was.
"""

import json
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.options import data_options
from benchmarks.wordalign import systems
from benchmarks.wordalign.corpus import Corpus, read_corpus, write_pairs
from benchmarks.wordalign.filtering import filter_beside_translator, filter_by_aligner
from benchmarks.wordalign.measures import calibration, dev_pairs, difference, rates, thresholds
from benchmarks.wordalign.page import page
from benchmarks.wordalign.picture import draw_reliability
from latentalign import __version__
from latentalign.files import write_atomic
from latentalign.text.symmetrise import decode_links
from latentalign.training.run.environment import git_revision
from latentalign.wordalign.aligner import Aligner
from latentalign.wordalign.settings import Settings

SIZES = (20_000, 5000, 1000, 10_000)  # the larger claims first
ABLATED = 2000
ABLATIONS: dict[str, dict[str, Any]] = {
    "all of it": {},
    "without agreement": {"agree": False},
    "without affixes": {"affix_weight": 0.0},
    "without likeness": {"likeness_weight": 0.0},
    "without frequency": {"band_weight": 0.0},
    "without jumps of frequent words": {"jump_classes": 1},
    "without rounds of words alone": {"independent_rounds": 0},
    "without rounds of chains": {"chain_rounds": 0},
    "null 0.3 instead of 0.2": {"null": 0.3},
}


@dataclass(frozen=True)
class Row:
    """One system at one size."""

    size: int
    system: str
    seconds: float
    megabytes: float
    rates: dict[str, dict[str, float]]  # by each way to symmetrise


def compare(corpus: Corpus, size: int, peers: Path | None, keep: "Kept") -> dict[str, Any]:
    """Every system on the same files: the pairs aligned by hand (without their links), then `size` others."""
    work = keep.folder / str(size)
    work.mkdir(exist_ok=True)
    files = write_pairs([*corpus.dev, *corpus.pairs[:size]], work, f"{size}")
    count = len(corpus.dev)
    measured: dict[str, Callable[[], systems.Result]] = {
        "latentalign": lambda: systems.ours(files, work, count)
    }
    if peers is not None:
        measured["eflomal"] = lambda: systems.eflomal(peers, files, work, count)
        measured["fast_align"] = lambda: systems.fast_align(peers, files, work, count)
    found = {
        name: systems.Result.of(keep(f"{size}-{name}", lambda run=run: run().plain()))
        for name, run in measured.items()
    }
    rows = []
    for name, result in found.items():
        by_method = {method: rates(links, corpus.gold) for method, links in result.links.items()}
        rows.append(Row(size, name, result.seconds, result.megabytes, by_method))
    against = {}
    if "eflomal" in found:
        for method in ("mean", "grow-diag-final-and"):
            ours, theirs = found["latentalign"].links[method], found["eflomal"].links["intersection"]
            against[method] = difference(ours, theirs, corpus.gold)
    return {"rows": [asdict(row) for row in rows], "against_eflomal": against}


def own_figures(corpus: Corpus, aligner: Aligner) -> dict[str, Any]:
    found = dev_pairs(aligner, corpus)
    methods = ("mean", "grow-diag-final-and", "forward", "backward")
    return {
        "rates": {m: rates([frozenset(pair.links(m)) for pair in found], corpus.gold) for m in methods},
        "calibration": calibration(found, corpus.gold),
        "thresholds": thresholds(found, corpus.gold),
        "unknown_words": sum(pair.unknown for pair in found),
    }


def ablation(corpus: Corpus, name: str, change: dict[str, Any]) -> dict[str, Any]:
    """A part left out, on pairs whose text was learnt from (seen) and on pairs whose text was not (unseen)."""
    row: dict[str, Any] = {"name": name, "change": change}
    for seen in (True, False):
        pairs = [*(corpus.dev if seen else []), *corpus.pairs[:ABLATED]]
        found = dev_pairs(Aligner.fit(pairs, Settings(**change)), corpus)
        row["seen" if seen else "unseen"] = {
            m: rates([frozenset(pair.links(m)) for pair in found], corpus.gold)["aer"]
            for m in ("mean", "grow-diag-final-and")
        }
    return row


def decoding(corpus: Corpus, aligner: Aligner) -> dict[str, float]:
    """The error where a part of the way from posteriors to links is left out."""
    found = dev_pairs(aligner, corpus)
    links = {
        "all of it": [pair.links() for pair in found],
        "the threshold alone, for first and further links": [
            pair.links(threshold=pair.threshold) for pair in found
        ],
        "mean of the posteriors from 0.5 on": [
            decode_links((pair.forward + pair.backward) / 2, threshold=0.5) for pair in found
        ],
    }
    return {
        name: rates([frozenset(pair) for pair in kind], corpus.gold)["aer"] for name, kind in links.items()
    }


class Kept:
    """Results of finished parts, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, name: str, make: Callable[[], Any]) -> Any:
        path = self.folder / f"{name}.json"
        if not path.is_file():
            found = make()
            note(f"{name}: {json.dumps(found)}")
            write_atomic(path, json.dumps(found))
        return json.loads(path.read_text(encoding="utf-8"))


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = data_options(__doc__, work="runs/wordalign", out="docs/results/wordalign")
    parser.add_argument("--peers", type=Path, default=None)
    parser.add_argument("--translator", type=Path, default=None, help="a run on Multi30k, German to English")
    parser.add_argument("--multi30k", type=Path, default=None, help="folder of train and test_2016_flickr")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    corpus = read_corpus(options.data)
    keep = Kept(options.work)
    results: dict[str, Any] = {
        "version": __version__,
        "revision": keep("revision", git_revision),
        "machine": platform.machine(),
        "sizes": {},
        "ablations": [],
    }
    for size in SIZES:
        results["sizes"][str(size)] = compare(corpus, size, options.peers, keep)
    for size in SIZES:
        results["sizes"][str(size)]["own"] = keep(
            f"own-{size}", lambda n=size: own_figures(corpus, Aligner.load(options.work / str(n) / "aligner"))
        )
    results["unseen"] = keep("unseen", lambda: own_figures(corpus, Aligner.fit(corpus.pairs)))
    largest = options.work / str(max(SIZES)) / "aligner"
    results["decoding"] = keep("decoding", lambda: decoding(corpus, Aligner.load(largest)))
    results["filtering"] = {"europarl": keep("filtering", lambda: filter_by_aligner(corpus.pairs, ABLATED))}
    if options.translator is not None and options.multi30k is not None:
        results["filtering"]["multi30k"] = keep(
            "filtering-multi30k", lambda: filter_beside_translator(options.translator, options.multi30k)
        )
    for name, change in ABLATIONS.items():
        results["ablations"].append(keep(f"ablation {name}", lambda n=name, c=change: ablation(corpus, n, c)))
    write_atomic(options.out / "results.json", json.dumps(results, indent=1) + "\n")
    draw_reliability(results, options.out / "reliability.png")
    million = options.out / "million.json"
    measured = json.loads(million.read_text(encoding="utf-8")) if million.is_file() else None
    write_atomic(options.out / "README.md", page(results, measured))


if __name__ == "__main__":
    main()
