"""Memory networks on bAbI and on generated worlds: train every recipe, then write the tables.

python benchmarks/memory.py train --babi FILE_OR_FOLDER --runs runs/memory [--only NAME …] [--seeds 1 2 3]
python benchmarks/memory.py report --babi FILE_OR_FOLDER --runs runs/memory --out docs/results/memory
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from latentalign.files import write_atomic
from latentalign.reports.provenance import fingerprint_of, provenance_of_run, write_recipes

PUBLISHED = {"supervised": 6.7, "end-to-end": 12.4}  # mean error over the 20 tasks, 1k questions each
# name -> recipe and what is set on top of it
MODELS: dict[str, tuple[str, ...]] = {
    "supervised": ("memory-supervised",),
    "supervised-margin": ("memory-supervised", "model.facts=margin"),
    "end-to-end": ("memory-end-to-end",),
    "end-to-end-layer-wise": ("memory-end-to-end", "model.tying=layer-wise"),
    "dynamic": ("memory-dynamic",),
    "dynamic-facts": ("memory-dynamic", "model.facts=likelihood"),
    "marginal": ("memory-marginal",),
    "hard": ("memory-hard",),
    "variational": ("memory-variational",),
    "path": ("memory-path",),
}
COLUMNS = ("accuracy", "error", "nll", "prior_entropy", "attention_accuracy", "posterior_attention_accuracy")


def train_command(name: str, seed: int, *, data: str, folder: Path) -> list[str]:
    """The command that trains one model."""
    recipe, *settings = MODELS[name]
    stories = [f"data.stories=[{data}]"] if data else []
    changes = [f"--set={text}" for text in (*stories, *settings, f"seed={seed}")]
    return ["latentalign", "train", f"recipes/{recipe}.yaml", *changes, "--out", str(folder)]


def evaluate_command(folder: Path, *, data: str) -> list[str]:
    """The command that measures it on the stories held out from training."""
    if data:
        return ["latentalign", "evaluate", str(folder), "--data", data, "--split", "held-out", "--json"]
    return [
        "latentalign",
        "evaluate",
        str(folder),
        "--data",
        str(folder / "stories"),
        "--split",
        "valid",
        "--json",
    ]


def folder_of(runs: Path, name: str, seed: int, *, data: str) -> Path:
    return runs / f"{'babi' if data else 'worlds'}-{name}-{seed}"


def is_finished(folder: Path) -> bool:
    log = folder / "log.txt"
    return log.is_file() and any("done: " in line for line in log.read_text().splitlines()[-3:])


def train_all(arguments: argparse.Namespace) -> None:
    for seed in arguments.seeds:
        for name in arguments.only:
            folder = folder_of(arguments.runs, name, seed, data=arguments.babi)
            if is_finished(folder):
                continue
            command = train_command(name, seed, data=arguments.babi, folder=folder)
            if (folder / "checkpoints").is_dir():
                command = ["latentalign", "train", "--resume", str(folder)]
            print(" ".join(command), flush=True)
            subprocess.run([sys.executable, "-m", *command], check=True, stderr=subprocess.DEVNULL)


def measure(folder: Path, *, data: str) -> dict[str, Any]:
    """Results of one run on held-out stories."""
    command = evaluate_command(folder, data=data)
    done = subprocess.run(
        [sys.executable, "-m", *command], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return {**found, "error": 100 * (1 - found["accuracy"])}


def collect(arguments: argparse.Namespace, *, data: str, shown: str) -> list[dict[str, Any]]:
    """A row for every model with finished runs; `shown` stands for the data's place in the commands."""
    rows = []
    for name in MODELS:
        runs = {}
        for seed in range(1, 20):
            folder = folder_of(arguments.runs, name, seed, data=data)
            if is_finished(folder):
                runs[seed] = measure(folder, data=data)
        if runs:
            first = folder_of(arguments.runs, name, next(iter(runs)), data=data)
            rows.append(_row(name, runs, data=shown) | _provenance(arguments, first, name, data=shown))
    return rows


def _provenance(arguments: argparse.Namespace, folder: Path, name: str, *, data: str) -> dict[str, Any]:
    """Which recipe a row is by; the recipe itself is kept beside the results."""
    provenance, values = provenance_of_run(folder)
    if data:
        values["data"]["stories"] = [data]  # not where they are on this machine
    write_recipes(arguments.out, [values])
    settings = [f"data.stories=[{data}]"] if data else []
    return {
        "recipe": f"memory-{name}",
        "settings": settings,
        **provenance,
        "fingerprint": fingerprint_of(values),
    }


def _row(name: str, runs: dict[int, dict[str, Any]], *, data: str) -> dict[str, Any]:
    seeds = list(runs)
    means = {
        column: sum(run[column] for run in runs.values()) / len(runs)
        for column in COLUMNS
        if all(column in run for run in runs.values())
    }
    place = Path("runs") / f"{'babi' if data else 'worlds'}-{name}-SEED"
    command = train_command(name, 0, data=data, folder=place)
    return {
        "model": name,
        "seeds": seeds,
        **means,
        "best_error": min(run["error"] for run in runs.values()),
        "train": " ".join(command).replace("seed=0", "seed=SEED"),
        "evaluate": " ".join(evaluate_command(place, data=data)),
        "runs": runs,
    }


def table(rows: list[dict[str, Any]], *, published: bool) -> list[str]:
    """Rows as Markdown."""
    head = "| model | seeds | mean accuracy | mean error | best error |" + (
        " published error |" if published else ""
    )
    lines = [head + " NLL | prior entropy | attention on a fact | posterior on a fact |"]
    lines.append("|---" * (lines[0].count("|") - 1) + "|")
    for row in rows:
        cells = [
            row["model"],
            str(len(row["seeds"])),
            f"{100 * row['accuracy']:.1f} %",
            f"{row['error']:.1f} %",
            f"{row['best_error']:.1f} %",
        ]
        if published:
            cells.append(f"{PUBLISHED[row['model']]} %" if row["model"] in PUBLISHED else "–")
        cells += [f"{row['nll']:.3f}", f"{row['prior_entropy']:.2f}"]
        for column in ("attention_accuracy", "posterior_attention_accuracy"):
            cells.append(f"{100 * row[column]:.1f} %" if column in row else "–")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def by_pattern(rows: list[dict[str, Any]], key: str) -> list[str]:
    """Accuracy by question pattern (or by source), a column a model, means over seeds."""
    prefix = f"accuracy by {key}: "
    names = sorted(
        {name for row in rows for run in row["runs"].values() for name in run if name.startswith(prefix)}
    )
    lines = [f"| {key} | " + " | ".join(row["model"] for row in rows) + " |", "|---" * (len(rows) + 1) + "|"]
    for name in names:
        values = [[run[name] for run in row["runs"].values() if name in run] for row in rows]
        cells = [f"{100 * sum(v) / len(v):.0f}" if v else "–" for v in values]
        lines.append(f"| {name.removeprefix(prefix)} | " + " | ".join(cells) + " |")
    return lines


def commands(rows: list[dict[str, Any]]) -> list[str]:
    return ["```", *(line for row in rows for line in (row["train"], row["evaluate"])), "```"]


def report(arguments: argparse.Namespace) -> None:
    babi = collect(arguments, data=arguments.babi, shown="BABI") if arguments.babi else []
    worlds = collect(arguments, data="", shown="")
    out: Path = arguments.out
    write_atomic(out / "results.json", json.dumps({"babi": babi, "worlds": worlds}, indent=1) + "\n")
    lines = ["# Memory networks", ""]
    if babi:
        lines += ["## bAbI, 1k questions a task, all 20 tasks at once", "", *table(babi, published=True), ""]
        lines += [
            "Accuracy (%) by question pattern:",
            "",
            *by_pattern(babi, "pattern"),
            "",
            *commands(babi),
            "",
        ]
    if worlds:
        lines += ["## Generated worlds", "", *table(worlds, published=False), ""]
        lines += [
            "Accuracy (%) by kind of question:",
            "",
            *by_pattern(worlds, "pattern"),
            "",
            *commands(worlds),
            "",
        ]
    write_atomic(out / "tables.md", "\n".join(lines))
    print("\n".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("train", "report"))
    parser.add_argument("--babi", default="", help="bAbI file or folder; without it, generated worlds")
    parser.add_argument("--runs", type=Path, default=Path("runs/memory"))
    parser.add_argument("--out", type=Path, default=Path("docs/results/memory"))
    parser.add_argument("--only", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[1])
    arguments = parser.parse_args()
    train_all(arguments) if arguments.action == "train" else report(arguments)


if __name__ == "__main__":
    main()
