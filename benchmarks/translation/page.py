"""The results as a page: Markdown tables and a picture of growth."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.translation.goals import figure, judge_all
from latentalign.files import write_atomic


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table; the first column is text, the others numbers."""
    bars = ["---", *["---:"] * (len(head) - 1)]
    return ["| " + " | ".join(cells) + " |" for cells in (head, bars, *rows)]


def write_page(results: dict[str, Any], folder: Path) -> None:
    """README.md, and growth.png where growth was measured."""
    parts = [["# Measured speed and memory", "", *_facts(results), ""], _goals(results)]
    for section, part in (
        ("training", _training),
        ("peer", _peer),
        ("decoding", _decoding),
        ("machine", _machine),
        ("profile", _profile),
        ("growth", _growth),
    ):
        if section in results:
            parts.append(part(results[section]))
    if "growth" in results:
        draw_growth(results["growth"]["rows"], folder / "growth.png")
    write_atomic(folder / "README.md", "\n".join(line for part in parts for line in part).rstrip() + "\n")


def _facts(results: dict[str, Any]) -> list[str]:
    lines = ["Written by `make bench`; the same figures are in [performance.json](performance.json).", ""]
    for section, facts in results.get("measured", {}).items():
        lines.append(
            f"- {section}: {facts['when']}, {facts['machine']}, torch {facts['torch']}, {facts['threads']} "
            f"threads, {facts['data']}; load before and after: {facts['load'][0]} and {facts['load'][1]}"
        )
    return lines


def _goals(results: dict[str, Any]) -> list[str]:
    rows = [
        [row["figure"], figure(row["value"]), row["goal"], "yes" if row["reached"] else "**no**"]
        for row in judge_all(results)
    ]
    return ["## Goals", "", *table(("figure", "measured", "goal", "reached"), rows), ""]


def _training(found: dict[str, Any]) -> list[str]:
    head = (
        "objective",
        "tokens/s",
        "/ soft",
        "prior entropy",
        "dropped mass",
        "peak MiB",
        "of which the steps",
    )
    rows = [
        [
            name,
            figure(row["per_second"]),
            f"{row['ratio']:.2f}",
            f"{row['prior_entropy']:.2f}",
            f"{row['dropped_mass']:.4f}" if "dropped_mass" in row else "–",
            f"{row['peak_mib']:.0f}",
            f"{row['extra_mib']:.0f}",
        ]
        for name, row in found["objectives"].items()
    ]
    lines = ["## Training steps", "", *table(head, rows), ""]
    lines += ["Gradient of the pruned sums against the dense ones, dropout off:", ""]
    measured = ("relative_error", "largest_error", "dropped_mass")
    errors = [
        [f"{kind}, ε = {row['prune']:g}", *(f"{row[name]:.4f}" for name in measured)]
        for kind, listed in found["gradients"].items()
        for row in listed
    ]
    return [*lines, *table(("objective", "relative error", "largest", "dropped mass"), errors), ""]


def _peer(found: dict[str, Any]) -> list[str]:
    if "skipped" in found:
        return ["## Beside JoeyNMT", "", f"Not measured: {found['skipped']}.", ""]
    training = [
        [name, figure(row["per_second"]), f"{alone['ratio']:.2f}", f"{row['ratio']:.2f}"]
        for (name, row), alone in zip(
            found["training"].items(), found["training_over_own_batches"].values(), strict=True
        )
    ]
    decoding = [
        [name, figure(row["per_second"]), f"{row['ratio']:.2f}", f"{row['tokens_per_sentence']:.1f}"]
        for name, row in found["decoding"].items()
    ]
    return [
        "## Beside JoeyNMT",
        "",
        f"Trained for {found['updates']} updates, and then decoding. JoeyNMT's own loader batches sentences in random "
        "order; a second copy of it is given our batches, in which lengths are alike, and that one decodes.",
        "",
        *table(("training", "tokens/s", "/ JoeyNMT, its own batches", "/ JoeyNMT"), training),
        "",
        *table((f"beam {found['beam']}", "sentences/s", "/ JoeyNMT", "tokens a sentence"), decoding),
        "",
    ]


def _decoding(found: dict[str, Any]) -> list[str]:
    rows = [
        [f"{name}, state {state}", figure(row["per_second"]), f"{row['time_over_soft']:.2f}"]
        for state, listed in found["inference"].items()
        for name, row in listed.items()
    ]
    names = list(found["beam_exponent"])
    lines = ["## Decoding", "", *table(("inference", "sentences/s", "time / soft"), rows), ""]
    for key, points in (("beam", found["by_beam"]), ("batch", found["by_batch"])):
        cells = [[str(point[key]), *(f"{1e3 * point[name]:.1f}" for name in names)] for point in points]
        lines += [*table((f"ms a sentence by {key}", *names), cells), ""]
    return lines


def _machine(found: dict[str, Any]) -> list[str]:
    rows = [[name, figure(row["per_second"]), f"{row['ratio']:.2f}"] for name, row in found["rates"].items()]
    return ["## The machine", "", *table(("work", "GFLOP/s", "share"), rows), ""]


def _profile(found: dict[str, Any]) -> list[str]:
    lines = ["## Profile of a step", ""]
    for name, listed in found.items():
        rows = [[f"`{row['operator']}`", f"{100 * row['share']:.1f} %"] for row in listed]
        lines += [*table((name, "share of its time"), rows), ""]
    return lines


def _growth(found: dict[str, Any]) -> list[str]:
    head = (
        "objective",
        "V",
        "S = T",
        "ms a token",
        "/ soft",
        "peak MiB",
        "/ soft",
        "of which the step",
        "/ soft",
    )
    rows = [
        [
            row["objective"],
            str(row["vocabulary"]),
            str(row["length"]),
            f"{1e3 * row['seconds_per_token']:.2f}",
            f"{row['time_over_soft']:.1f}",
            f"{row['peak_mib']:.0f}",
            f"{row['peak_over_soft']:.2f}",
            f"{row['extra_mib']:.0f}",
            f"{row['extra_over_soft']:.2f}",
        ]
        for row in found["rows"]
    ]
    return [
        "## Growth",
        "",
        "![time and memory by length and vocabulary](growth.png)",
        "",
        *table(head, rows),
        "",
    ]


def draw_growth(rows: list[dict[str, Any]], path: Path) -> None:
    """Time a token above and memory below, a column for each vocabulary."""
    from matplotlib.figure import Figure

    vocabularies = sorted({row["vocabulary"] for row in rows})
    picture = Figure(figsize=(4 * len(vocabularies), 7), layout="constrained")
    axes = picture.subplots(2, len(vocabularies), squeeze=False, sharex=True, sharey="row")
    for column, vocabulary in enumerate(vocabularies):
        for name in dict.fromkeys(row["objective"] for row in rows):
            line = [row for row in rows if row["objective"] == name and row["vocabulary"] == vocabulary]
            lengths = [row["length"] for row in line]
            axes[0][column].plot(
                lengths, [1e3 * row["seconds_per_token"] for row in line], marker="o", label=name
            )
            axes[1][column].plot(lengths, [row["peak_mib"] for row in line], marker="o", label=name)
        axes[0][column].set(title=f"V = {vocabulary:,}", xscale="log", yscale="log")
        axes[1][column].set(xlabel="S = T", xticks=lengths, xticklabels=lengths)
        axes[1][column].minorticks_off()
    axes[0][0].set_ylabel("ms a target token")
    # only now: a limit set before the other columns are drawn would hold for them, too
    axes[1][0].set(ylabel="peak memory, MiB", ylim=(0, 1.05 * max(row["peak_mib"] for row in rows)))
    axes[0][0].legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=110)
