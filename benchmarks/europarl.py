"""Word alignment on Europarl: train translators of both kinds; measure their links against those made by hand.

python -m benchmarks.europarl --data DIR [--only chain …] [--work runs/europarl] [--out docs/results/alignment]

DIR has europarl20k.{de,en}.gz and dev.{de,en,gold} (tokenised, lower-case). The text is tokenised and lower-cased as
the gold pairs are; pairs of at most 60 words are kept, and the gold pairs (without their links) are among those trained
on, as they are for aligners. A finished run is not trained again. `--only` keeps the rows of the other models. Aligners
stand in the same table, as `benchmarks.wordalign` measured them on these pairs.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import latentalign as la
from benchmarks.attention_heads import PRIOR, attention_links
from benchmarks.options import data_options
from latentalign import __version__
from latentalign.files import read_lines, write_atomic
from latentalign.reports.provenance import provenance_of_run, write_recipes
from latentalign.text.links import read_links, score_links
from latentalign.text.parallel import read_parallel

WORDS = re.compile(r"\w+(?:-\w+)*|'s\b|[^\w\s]")
HELD_OUT = 300  # pairs to validate on
RUNS = {
    "soft": "europarl-de-en",
    "variational": "europarl-de-en-variational",
    "chain": "europarl-de-en-chain",
    "Transformer, soft": "europarl-de-en-transformer",
    "Transformer, chain": "europarl-de-en-transformer-chain",
    "Transformer, chain, cross_layers 3": "europarl-de-en-transformer-chain-cross",
}
ROWS = (
    ("soft", "prior"), ("soft", "exact"),
    ("variational", "prior"), ("variational", "posterior"), ("variational", "exact"),
    ("chain", "prior"), ("chain", "exact"), ("chain", "path"),
    ("Transformer, soft", "prior"), ("Transformer, soft", "prior, one step later"),
    ("Transformer, soft", "best head"), ("Transformer, soft", "best head, one step later"),
    ("Transformer, soft", "exact"),
    ("Transformer, chain", "prior"), ("Transformer, chain", "exact"), ("Transformer, chain", "path"),
    ("Transformer, chain, cross_layers 3", "prior"), ("Transformer, chain, cross_layers 3", "exact"),
    ("Transformer, chain, cross_layers 3", "path"),
)  # fmt: skip
LATER = ", one step later"
WAYS = {"path": ("--by", "exact", "--path")}  # what `align` is told where it is more than --by
ALIGNERS = Path("docs/results/wordalign/results.json")


def prepare(data: Path, folder: Path) -> None:
    """Tokenised, lower-cased text for training and validation."""
    pairs = []
    for pair in zip(*(read_lines(data / f"europarl20k.{side}.gz") for side in ("de", "en")), strict=True):
        words = [WORDS.findall(text.lower()) for text in pair]
        if all(1 <= len(side) <= 60 for side in words):
            pairs.append([" ".join(side) for side in words])
    gold = [
        list(pair) for pair in zip(*(read_lines(data / f"dev.{side}") for side in ("de", "en")), strict=True)
    ]
    parts = {"train": [*pairs[:-HELD_OUT], *gold], "valid": pairs[-HELD_OUT:]}
    for name, part in parts.items():
        for number, side in enumerate(("de", "en")):
            write_atomic(folder / f"{name}.{side}", "".join(pair[number] + "\n" for pair in part))


def command(*words: str | Path) -> str:
    """Run latentalign; what it prints."""
    line = [sys.executable, "-m", "latentalign", *map(str, words)]
    print(" ".join(line[2:]), file=sys.stderr, flush=True)
    return subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout


def train(name: str, data: Path, run: Path) -> None:
    if (run / "checkpoints").is_dir():
        command("train", "--resume", run)
    else:
        command("train", RUNS[name], "--set", f"data.folder={data}", "--out", run)


def measure_attention(run: Path, by: str, data: Path) -> dict[str, Any]:
    """The error of links read off ordinary attention; the best head is chosen by the same pairs, in its favour."""
    pairs = list(read_parallel(data / "dev.de", data / "dev.en"))
    gold = list(read_links(data / "dev.gold"))
    is_prior, later = by.startswith(PRIOR), by.endswith(LATER)
    loaded = la.load(run)
    assert isinstance(loaded, la.Run)
    rates = {
        name: score_links(links, gold)
        for (name, step), links in attention_links(loaded, pairs).items()
        if step == later and (name == PRIOR) == is_prior
    }
    best = min(rates, key=lambda name: rates[name].aer)
    rate = rates[best]
    found = {"aer": rate.aer, "precision": rate.precision, "recall": rate.recall, "pairs": len(pairs)}
    return found if is_prior else {**found, "head": best, "heads": len(rates)}


def measure(run: Path, by: str, data: Path, folder: Path) -> dict[str, Any]:
    """The error of a run's likeliest links on the pairs aligned by hand."""
    if by.startswith("best head") or by.endswith(LATER):
        return measure_attention(run, by, data)
    files = ("--source", data / "dev.de", "--target", data / "dev.en")
    links = folder / f"{run.name}-{by}.links"
    command("align", run, *files, *WAYS.get(by, ("--by", by)), "--output", links)
    found: dict[str, Any] = json.loads(
        command("aer", "--gold", data / "dev.gold", "--predicted", links, *files, "--json")
    )
    return found


def minutes(run: Path) -> float:
    last = json.loads((run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    return float(last["training_seconds"]) / 60


def rows_of_aligners(path: Path) -> list[dict[str, Any]]:
    """What aligners found with the most pairs: ours and its peers, by direction and way to put both together."""
    sizes: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["sizes"]
    return [
        {"model": f"{row['system']}, aligner", "by": by, **rates, "minutes": row["seconds"] / 60}
        for row in sizes[max(sizes, key=int)]["rows"]
        for by, rates in row["rates"].items()
    ]


def page(rows: list[dict[str, Any]]) -> str:
    lines = [
        "# Word alignment on Europarl",
        "",
        "German to English, 20,000 pairs, one direction, no dictionary; error (AER) of the likeliest links against 50",
        "pairs aligned by hand. `exact` is the posterior by Bayes' rule from prior and likelihood. Training leaves out",
        "pairs of more than 40 pieces a side, so translators learn from 11,920 of the pairs.",
        "",
        "| model | links by | AER | precision | recall | validation PPL | minutes |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        perplexity = f"{row['valid_ppl']:.2f}" if "valid_ppl" in row else "–"
        lines.append(
            f"| {row['model']} | {row['by']} | {row['aer']:.3f} | {row['precision']:.3f} | {row['recall']:.3f} "
            f"| {perplexity} | {row['minutes']:.0f} |"
        )
    return "\n".join([
        *lines,
        "",
        "`prior` is the attention before the word is known, `posterior` that of the inference network, `path` the",
        "best path of a chain. `best head` is the head of ordinary attention with the lowest error on these pairs,",
        "a choice in its favour (`results.json` names it). `one step later` takes the attention of the next step, the",
        "first that has read the word. Aligners learn both directions from all pairs of at most 60 words and are taken",
        "from [their own page](../wordalign/README.md): `forward` is English given German, as translators are, and",
        "`mean`, `intersection`, `union` and `grow-diag-final-and` use both. Command:",
        "",
        "```",
        "python -m benchmarks.europarl --data DIR",
        "```",
        "",
    ])  # fmt: skip


def result(
    name: str, by: str, run: Path, options: argparse.Namespace
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A row, and the recipe it is by."""
    results = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    provenance, values = provenance_of_run(run)
    row = {
        "model": name,
        "by": by,
        **measure(run, by, options.data, options.work),
        "valid_ppl": min(result["ppl"] for result in results),
        "minutes": minutes(run),
        "recipe": RUNS[name],
        "seed": 1,
        "version": __version__,
        **provenance,
    }
    return row, values


def main() -> None:
    parser = data_options(__doc__, work="runs/europarl", out="docs/results/alignment")
    parser.add_argument("--only", nargs="+", choices=list(RUNS), help="train and measure these models alone")
    options = parser.parse_args()
    text, path = options.work / "data", options.out / "results.json"
    if not (text / "valid.en").is_file():
        prepare(options.data, text)
    known = json.loads(path.read_text(encoding="utf-8"))["rows"] if options.only and path.is_file() else []
    rows, recipes = [row for row in known if row["model"] not in options.only], []
    for name, by in ROWS:
        if options.only is None or name in options.only:
            run = options.work / RUNS[name]
            train(name, text.resolve(), run)
            row, values = result(name, by, run, options)
            rows.append(row)
            recipes.append(values)
    rows.sort(key=lambda row: ROWS.index((row["model"], row["by"])))
    write_atomic(path, json.dumps({"rows": rows}, indent=1) + "\n")
    write_recipes(options.out, recipes)
    notes = options.out / "notes.md"  # written by hand
    text = page(rows + rows_of_aligners(ALIGNERS)) + (
        f"\n{notes.read_text(encoding='utf-8')}" if notes.is_file() else ""
    )
    write_atomic(options.out / "README.md", text)
    print(text)


if __name__ == "__main__":
    main()
