"""Memory networks on bAbI and on generated worlds: train every model with every seed, then write the tables.

python benchmarks/memory.py all --babi TRAIN --test TEST --runs runs/memory [--only NAME …] [--seeds 1 2 3]

`all` is `train` (what is finished is not trained again, what was interrupted goes on) and then `report`. A tenth of the
training stories is held out: it chooses the epoch of a run, and the run that is called the best of several. The test
part is measured for the report and chooses nothing. Without `--test` the held-out stories are reported, and without
`--babi` generated worlds.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from latentalign.files import write_atomic
from latentalign.reports.provenance import fingerprint_of, provenance_of_run, write_recipes
from latentalign.training.run.config_file import CONFIG

# mean error over the 20 tasks, 1k questions each; the end-to-end figure is the best of ten runs, tied layer by layer
PUBLISHED = {"supervised": 6.7, "end-to-end": 12.4}
# name -> recipe and what is set on top of it
MODELS: dict[str, tuple[str, ...]] = {
    "supervised": ("memory-supervised",),
    "supervised-margin": ("memory-supervised", "model.facts=margin"),
    "end-to-end": ("memory-end-to-end",),
    "end-to-end-adjacent": ("memory-end-to-end", "model.tying=adjacent"),
    "dynamic": ("memory-dynamic",),
    "dynamic-facts": ("memory-dynamic", "model.facts=likelihood"),
    "marginal": ("memory-marginal",),
    "hard": ("memory-hard",),
    "variational": ("memory-variational",),
    "variational-from-prior": ("memory-variational-from-prior",),
    "path": ("memory-path",),
}
COLUMNS = ("accuracy", "error", "nll", "prior_entropy", "attention_accuracy", "posterior_attention_accuracy")
Run = dict[str, Any]
Row = dict[str, Any]


def settings_of(name: str, *, data: str, more: list[str]) -> list[str]:
    """What a model's recipe is changed by."""
    stories = [f"data.stories=[{data}]"] if data else []
    return [*stories, *MODELS[name][1:], *more]


def train_command(name: str, seed: int | str, *, data: str, folder: Path, more: list[str]) -> list[str]:
    """The command that trains one model."""
    changes = [f"--set={text}" for text in (*settings_of(name, data=data, more=more), f"seed={seed}")]
    return ["latentalign", "train", f"recipes/{MODELS[name][0]}.yaml", *changes, "--out", str(folder)]


def evaluate_commands(folder: Path, *, data: str, test: str) -> list[list[str]]:
    """The commands that measure it: on the stories held out from training, and on the test part if there is one."""
    stories, split = (data, "held-out") if data else (str(folder / "stories"), "valid")
    evaluate = ["latentalign", "evaluate", str(folder), "--json", "--data"]
    return [[*evaluate, stories, "--split", split], *([[*evaluate, test]] if test else [])]


def folder_of(runs: Path, name: str, seed: int | str, *, data: str) -> Path:
    return runs / f"{'babi' if data else 'worlds'}-{name}-{seed}"


def is_finished(folder: Path) -> bool:
    log = folder / "log.txt"
    return log.is_file() and any("done: " in line for line in log.read_text().splitlines()[-3:])


def train(arguments: argparse.Namespace) -> None:
    """Every model with the first seed before any with the second."""
    for seed in arguments.seeds:
        for name in arguments.only:
            folder = folder_of(arguments.runs, name, seed, data=arguments.babi)
            if is_finished(folder):
                continue
            command = train_command(name, seed, data=arguments.babi, folder=folder, more=arguments.settings)
            if (folder / CONFIG).is_file():
                command = ["latentalign", "train", "--resume", str(folder)]
            print(" ".join(command), flush=True)
            subprocess.run([sys.executable, "-m", *command], check=True, stderr=subprocess.DEVNULL)


def measure(folder: Path, *, data: str, test: str) -> Run:
    """What is reported of a run; `validation_error` is that of the held-out stories, the rest is the test part's."""
    found = []
    for command in evaluate_commands(folder, data=data, test=test):
        done = subprocess.run(
            [sys.executable, "-m", *command], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        found.append(json.loads(done.stdout))
    errors = [100 * (1 - part["accuracy"]) for part in found]
    return {**found[-1], "error": errors[-1], "validation_error": errors[0]}


def collect(arguments: argparse.Namespace, *, data: str, test: str) -> list[Row]:
    """A row for every model with finished runs; in its commands BABI and TEST stand for the data's places."""
    rows = []
    for name in MODELS:
        folders = {seed: folder_of(arguments.runs, name, seed, data=data) for seed in range(1, 20)}
        runs = {
            seed: measure(folder, data=data, test=test)
            for seed, folder in folders.items()
            if is_finished(folder)
        }
        if runs:
            provenance = _provenance(arguments, folders[next(iter(runs))], name, data="BABI" if data else "")
            rows.append({"model": name, **summarise(runs), **provenance, **_commands(arguments, name, data)})
    return rows


def summarise(runs: dict[int, Run]) -> Row:
    """Means over the runs of a model, and the run that the held-out stories call the best."""
    everything = list(runs.values())
    columns = [column for column in COLUMNS if all(column in run for run in everything)]
    best = min(everything, key=lambda run: float(run["validation_error"]))
    return {
        "seeds": list(runs),
        **{
            column: statistics.fmean(run[column] for run in everything)
            for column in (*columns, "validation_error")
        },
        "error_deviation": statistics.stdev(run["error"] for run in everything) if len(runs) > 1 else None,
        "best_error": best["error"],
        "runs": runs,
    }


def _provenance(arguments: argparse.Namespace, folder: Path, name: str, *, data: str) -> Row:
    """Which recipe a row is by; the recipe itself is kept beside the results."""
    provenance, values = provenance_of_run(folder)
    if data:
        values["data"]["stories"] = [data]  # not where they are on this machine
    write_recipes(arguments.out, [values])
    return {
        "recipe": MODELS[name][0],
        "settings": settings_of(name, data=data, more=arguments.settings),
        **provenance,
        "fingerprint": fingerprint_of(values),
    }


def _commands(arguments: argparse.Namespace, name: str, data: str) -> Row:
    data, test = ("BABI", "TEST") if data else ("", "")
    place = folder_of(Path("runs"), name, "SEED", data=data)
    evaluate = evaluate_commands(place, data=data, test=test if arguments.test else "")
    return {
        "train": " ".join(train_command(name, "SEED", data=data, folder=place, more=arguments.settings)),
        "evaluate": [" ".join(command) for command in evaluate],
    }


def table(rows: list[Row], *, part: str, published: bool) -> list[str]:
    """Rows as Markdown; `part` names what the errors are of."""
    heads = ["model", "runs", "validation error", f"{part} error", "best of n by validation"]
    heads += ["published"] if published else []
    heads += ["NLL", "prior entropy", "attention on a fact", "posterior on a fact"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        count, deviation = len(row["seeds"]), row["error_deviation"]
        cells = [
            row["model"],
            str(count),
            f"{row['validation_error']:.1f} %",
            f"{row['error']:.1f}" + ("" if deviation is None else f" ± {deviation:.1f}") + " %",
            f"{row['best_error']:.1f} % (n = {count})" if count > 1 else "–",
        ]
        if published:
            cells.append(f"{PUBLISHED[row['model']]} %" if row["model"] in PUBLISHED else "–")
        cells += [f"{row['nll']:.3f}", f"{row['prior_entropy']:.2f}"]
        for column in ("attention_accuracy", "posterior_attention_accuracy"):
            cells.append(f"{100 * row[column]:.1f} %" if column in row else "–")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def by_pattern(rows: list[Row]) -> list[str]:
    """Accuracy by question pattern, a column a model, means over seeds."""
    prefix = "accuracy by pattern: "
    names = sorted(
        {name for row in rows for run in row["runs"].values() for name in run if name.startswith(prefix)}
    )
    lines = ["| pattern | " + " | ".join(row["model"] for row in rows) + " |", "|---" * (len(rows) + 1) + "|"]
    for name in names:
        values = [[run[name] for run in row["runs"].values() if name in run] for row in rows]
        cells = [f"{100 * statistics.fmean(v):.0f}" if v else "–" for v in values]
        lines.append(f"| {name.removeprefix(prefix)} | " + " | ".join(cells) + " |")
    return lines


def section(title: str, rows: list[Row], *, part: str, published: bool) -> list[str]:
    """A heading, the table, accuracies and commands; nothing without rows."""
    if not rows:
        return []
    commands = [line for row in rows for line in (row["train"], *row["evaluate"])]
    shown = table(rows, part=part, published=published)
    told = ["Accuracy (%) by question pattern:", "", *by_pattern(rows)]
    return [f"## {title}", "", *shown, "", *told, "", "```", *commands, "```", ""]


def report(arguments: argparse.Namespace) -> None:
    """Measure every finished run, and write results.json and a page that takes in notes.md beside it."""
    babi = collect(arguments, data=arguments.babi, test=arguments.test) if arguments.babi else []
    worlds = collect(arguments, data="", test="")
    part = "test" if arguments.test else "held-out"
    title = "bAbI, 1k questions a task, all 20 tasks at once"
    out: Path = arguments.out
    notes = out / "notes.md"  # written by hand
    lines = ["# Memory networks", "", *([notes.read_text(encoding="utf-8")] if notes.is_file() else [])]
    lines += section(title, babi, part=part, published=True)
    lines += section("Generated worlds", worlds, part="held-out", published=False)
    write_atomic(out / "results.json", json.dumps({"babi": babi, "worlds": worlds}, indent=1) + "\n")
    write_atomic(out / "README.md", "\n".join(lines))
    print("\n".join(lines))


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("train", "report", "all"))
    parser.add_argument("--babi", default="", help="bAbI file or folder; without it, generated worlds")
    parser.add_argument("--test", default="", help="the official test part, for the report alone")
    parser.add_argument("--runs", type=Path, default=Path("runs/memory"))
    parser.add_argument("--out", type=Path, default=Path("docs/results/memory"))
    parser.add_argument("--only", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--set", dest="settings", action="append", default=[], help="change every recipe")
    arguments = parser.parse_args(words)
    if arguments.action in ("train", "all"):
        train(arguments)
    if arguments.action in ("report", "all"):
        report(arguments)


if __name__ == "__main__":
    main()
