"""The page of results."""

from typing import Any


def page(results: dict[str, Any]) -> str:
    return "\n".join([
        "# The aligner on Europarl",
        "",
        "German–English, error (AER) against 50 pairs aligned by hand, whose text (without links) is also learnt from.",
        "All systems read the same tokens; CPU seconds of one thread, from start to the last link. Command:",
        "",
        "```",
        "python -m benchmarks.wordalign --data DIR --peers VENV",
        "```",
        "",
        *_systems(results),
        "",
        *_own(results),
        "",
        *_ablations(results),
        "",
    ])  # fmt: skip


def _systems(results: dict[str, Any]) -> list[str]:
    lines = [
        "| pairs | system | mean | grow-diag-final-and | intersection | en given de | de given en | precision | recall "
        "| CPU s | MB |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    methods = ("mean", "grow-diag-final-and", "intersection", "forward", "backward")
    for row in [row for size in sorted(results["sizes"], key=int) for row in results["sizes"][size]["rows"]]:
        cells = [f"{row['rates'][m]['aer']:.3f}" if m in row["rates"] else "–" for m in methods]
        main = next(
            row["rates"][m] for m in ("mean", "intersection", "grow-diag-final-and") if m in row["rates"]
        )
        lines.append(
            f"| {row['size']:,} | {row['system']} | {' | '.join(cells)} "
            f"| {main['precision']:.3f} | {main['recall']:.3f} | {row['seconds']:.0f} | {row['megabytes']:.0f} |"
        )
    lines += [
        "",
        "Precision and recall are those of mean, of eflomal's intersection, and of fast_align's only figure. Sizes are",
        "the pairs beside the 50; 18,784 of the 20,000 have at most 60 words a side.",
        "",
        "Difference to eflomal's intersection (paired bootstrap over the 50 pairs, 95 %):",
        "",
    ]
    for size in sorted(results["sizes"], key=int):
        for method, (full, low, high) in results["sizes"][size]["against_eflomal"].items():
            lines.append(f"- {int(size):,} pairs, {method}: {full:+.3f} [{low:+.3f}, {high:+.3f}]")
    return lines


def _own(results: dict[str, Any]) -> list[str]:
    lines = [
        "| all pairs | mean | grow-diag-final-and | threshold | best threshold | calibration error | unknown words |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in ("seen", "unseen"):
        own = results[name]
        bounds = own["thresholds"]
        lines.append(
            f"| text {name} in training | {own['rates']['mean']['aer']:.3f} "
            f"| {own['rates']['grow-diag-final-and']['aer']:.3f} "
            f"| {bounds['own']:.2f}: {bounds['own_aer']:.3f} | {bounds['best']:.2f}: {bounds['best_aer']:.3f} "
            f"| {own['calibration']['error']:.3f} | {own['unknown_words']} |"
        )
    lines += [
        "",
        "How often printed links are right (20,000 pairs, text seen; no gold link was used to fit anything):",
        "",
    ]
    lines += ["| probability | right | links | |", "|---|---|---|---|"]
    for item in results["seen"]["calibration"]["bins"]:
        bar = "█" * round(20 * item["right"])
        lines.append(f"| {item['probability']:.2f} | {item['right']:.2f} | {item['links']} | {bar} |")
    lines += [
        "",
        "Filtering: of 1,000 pairs that a model of 2,000 others had not seen, a tenth with the target of another: area",
        f"under the ROC curve of the pair score {results['filtering_auc']:.4f}.",
    ]
    return lines


def _ablations(results: dict[str, Any]) -> list[str]:
    lines = [
        "Each part left out, 2,000 pairs (AER by mean / grow-diag-final-and):",
        "",
        "| | text seen | text unseen |",
        "|---|---|---|",
    ]
    for row in results["ablations"]:
        cells = [f"{row[k]['mean']:.3f} / {row[k]['grow-diag-final-and']:.3f}" for k in ("seen", "unseen")]
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    return lines
