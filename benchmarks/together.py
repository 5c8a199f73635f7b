"""Links of a translator and of an aligner on Europarl, each alone and both together.

python -m benchmarks.together --data DIR [--work runs/together] [--out docs/results/alignment] [--epochs 1]

DIR is that of benchmarks.europarl, and so are the texts. An aligner learns from the training pairs; a translator
(recipes/europarl-de-en-links.yaml) then learns with the aligner's links as its posterior. Together: links whose
probability, the mean of the aligner's and of the translator's exact posterior, is at least one half. What is there
already is not learnt again.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

import latentalign as la
from benchmarks.europarl import command, prepare
from benchmarks.options import data_options
from latentalign.files import write_atomic
from latentalign.text.links import Link, Links, read_links, score_links
from latentalign.text.parallel import read_parallel
from latentalign.text.symmetrise import decode_links
from latentalign.training.run.environment import git_revision

RECIPE = "europarl-de-en-links"
KEPT = 0.02  # links of at least this probability are written down for training
LEAST = 0.5  # of a link by both together


def learn(data: Path, work: Path, epochs: float) -> tuple[Path, Path]:
    """The folders of the aligner and of the run."""
    text, aligner, run = work / "data", work / "aligner", work / "run"
    if not (text / "valid.en").is_file():
        prepare(data, text)
    options = ("--scores", "--threshold", str(KEPT), "--output")
    for split, how in (("train", ("--save", aligner)), ("valid", (aligner,))):
        if not (text / f"{split}.links").is_file():
            files = ("--source", text / f"{split}.de", "--target", text / f"{split}.en")
            command("align", *how, *files, *options, text / f"{split}.links")
    if not (run / "model.safetensors").is_file():
        settings = ("--set", f"data.folder={text.resolve()}", "--set", f"training.epochs={epochs:g}")
        command("train", RECIPE, *settings, "--out", run)
    return aligner, run


def measure(aligner: Path, run: Path, data: Path) -> list[dict[str, Any]]:
    """Error, precision and recall of every kind of links on the pairs aligned by hand."""
    pairs = list(read_parallel(data / "dev.de", data / "dev.en"))
    gold = list(read_links(data / "dev.gold"))
    translator = la.load(run)
    assert isinstance(translator, la.Run)
    by_aligner = la.load(aligner).align(pairs)
    by_translator = {by: translator.align(pairs, by=by) for by in ("prior", "exact")}
    means = [
        (one.probs + other.probs) / 2 for one, other in zip(by_aligner, by_translator["exact"], strict=True)
    ]
    kinds: dict[str, list[set[Link]]] = {
        **{f"translator, {by}": [set(pair.links) for pair in found] for by, found in by_translator.items()},
        "aligner": [set(pair.links) for pair in by_aligner],
        "together, mean of exact and aligner": [set(decode_links(mean, threshold=LEAST)) for mean in means],
    }
    rows = []
    for name, found in kinds.items():
        rate = score_links([Links(frozenset(links)) for links in found], gold)
        rows.append({"links": name, "aer": rate.aer, "precision": rate.precision, "recall": rate.recall})
    together = np.array([_errors(kind, gold) for kind in (kinds["aligner"], list(kinds.values())[-1])])
    rows[-1]["difference"] = bootstrap(together)
    return rows


def _errors(found: list[set[Link]], gold: list[Links]) -> list[tuple[int, int]]:
    """Numerator and denominator of 1 − AER, pair by pair."""
    return [
        (len(links & known.sure) + len(links & known.all), len(links) + len(known.sure))
        for links, known in zip(found, gold, strict=True)
    ]


def bootstrap(counts: np.ndarray, draws: int = 10_000) -> list[float]:
    """Difference in AER of the second to the first [2,N,2], and its 95 % interval by resampling pairs."""
    random = np.random.default_rng(1)

    def difference(chosen: np.ndarray) -> float:
        first, second = (1 - counts[n][chosen, 0].sum() / counts[n][chosen, 1].sum() for n in (0, 1))
        return float(second - first)

    size = counts.shape[1]
    drawn = [difference(chosen) for chosen in random.integers(0, size, (draws, size))]
    return [difference(np.arange(size)), *np.quantile(drawn, [0.025, 0.975]).tolist()]


def page(content: dict[str, Any]) -> str:
    rows = content["rows"]
    change, low, high = rows[-1]["difference"]
    return "\n".join([
        "# Links of a translator and an aligner together",
        "",
        "Europarl, German to English, 50 pairs aligned by hand, measured at revision",
        f"{content['revision'][:10]}. The translator was trained with the aligner's links as its posterior",
        f"(epochs: {content['epochs']:g}); nothing of the aligner is in its run.",
        "",
        "| links by | AER | precision | recall |",
        "|---|---|---|---|",
        *(f"| {row['links']} | {row['aer']:.3f} | {row['precision']:.3f} | {row['recall']:.3f} |" for row in rows),
        "",
        f"Together against the aligner alone: {change:+.3f} [{low:+.3f}, {high:+.3f}] (paired bootstrap, 95 %).",
        "The exact links of a translator that was trained without an aligner, for 9.5 epochs, have 0.389",
        "([word alignment on Europarl](README.md)). Command:",
        "",
        "```",
        f"python -m benchmarks.together --data DIR --epochs {content['epochs']:g}",
        "```",
        "",
    ])  # fmt: skip


def main() -> None:
    parser = data_options(__doc__, work="runs/together", out="docs/results/alignment")
    parser.add_argument("--epochs", type=float, default=1.0)
    options = parser.parse_args()
    aligner, run = learn(options.data, options.work, options.epochs)
    content = {
        "revision": git_revision(),
        "epochs": options.epochs,
        "rows": measure(aligner, run, options.data),
    }
    write_atomic(options.out / "together.json", json.dumps(content, indent=1) + "\n")
    write_atomic(options.out / "together.md", page(content))
    print(page(content))


if __name__ == "__main__":
    main()
