"""The page of results."""

from typing import Any


def page(results: dict[str, Any], million: dict[str, Any] | None) -> str:
    return "\n".join([
        "# The aligner on Europarl",
        "",
        "German–English, error (AER) against 50 pairs aligned by hand, whose text (without links) is also learnt from.",
        "All systems read the same tokens; CPU seconds of one thread, from start to the last link of both directions",
        "(eflomal's are symmetrised afterwards, at no cost to it). Measured at revision",
        f"{results['revision'][:10]}. Command:",
        "",
        "```",
        "python -m benchmarks.wordalign --data DIR --peers VENV --translator RUN --multi30k DIR",
        "```",
        "",
        "## Beside other aligners",
        "",
        *_systems(results),
        "",
        *_own(results),
        "",
        *_filtering(results["filtering"]),
        "",
        *_ablations(results),
        "",
        *_million(million),
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
        "## Probabilities and thresholds",
        "",
        "| pairs | mean | grow-diag-final-and | own threshold: AER | best threshold: AER | calibration error "
        "| unknown words |",
        "|---|---|---|---|---|---|---|",
    ]
    rows = {f"{int(n):,}": results["sizes"][n]["own"] for n in sorted(results["sizes"], key=int)}
    for name, own in {**rows, "all, without the text of the 50": results["unseen"]}.items():
        bounds = own["thresholds"]
        lines.append(
            f"| {name} | {own['rates']['mean']['aer']:.3f} | {own['rates']['grow-diag-final-and']['aer']:.3f} "
            f"| {bounds['own']:.2f}: {bounds['own_aer']:.3f} | {bounds['best']:.2f}: {bounds['best_aer']:.3f} "
            f"| {own['calibration']['error']:.3f} | {own['unknown_words']} |"
        )
    return [
        *lines,
        "",
        "The calibration error is the mean distance between the probability of printed links and the share of right",
        "ones, in ten bins. No gold link was used to fit the probabilities or the threshold, but the two shares of the",
        "threshold by which `mean` takes a word's first link and its further ones were chosen on these 50 pairs (as",
        "were `null` and `band_weight`), so that figures by `mean` flatter it. The best threshold is the best by gold",
        "links of those tried with `--threshold`.",
        "",
        "![How often printed links are right, against their probability](reliability.png)",
        "",
        "Numbers beside the points are links.",
    ]


def _filtering(found: dict[str, Any]) -> list[str]:
    lines = [
        "## Filtering bad pairs",
        "",
        "Of 1,000 pairs a tenth got the target of another. Area under the ROC curve of the pair's score:",
        "",
        "| pairs | aligner | translator |",
        "|---|---|---|",
        f"| Europarl, an aligner of 2,000 other pairs | {found['europarl']:.4f} | – |",
    ]
    if "multi30k" in found:
        both = found["multi30k"]
        lines.append(
            f"| Multi30k, test 2016, both learnt from {both['pairs']:,} pairs (translator: exact marginal, "
            f"{both['epochs']:g} epochs) | {both['aligner']:.4f} | {both['translator']:.4f} |"
        )
    return lines


def _ablations(results: dict[str, Any]) -> list[str]:
    lines = [
        "## Each part left out",
        "",
        "2,000 pairs, AER by mean / grow-diag-final-and:",
        "",
        "| | text seen | text unseen |",
        "|---|---|---|",
    ]
    for row in results["ablations"]:
        cells = [f"{row[k]['mean']:.3f} / {row[k]['grow-diag-final-and']:.3f}" for k in ("seen", "unseen")]
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    lines += ["", "From posteriors to links, all pairs:", "", "| | AER |", "|---|---|"]
    return [*lines, *(f"| {name} | {aer:.3f} |" for name, aer in results["decoding"].items())]


def _million(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return []
    lines = [
        "## A larger corpus",
        "",
        f"{found['runs'][0]['pairs']:,} generated pairs of 3 to 10 words (20,000 words by Zipf's law, swaps, words",
        "without a link), learnt from and aligned by one command; AER against the links of the generator. Counts",
        "kept while learning are bounded by `--most-counts`:",
        "",
        "| counts kept | processes | CPU s | MB | AER |",
        "|---|---|---|---|---|",
    ]
    for run in found["runs"]:
        lines.append(
            f"| {run['most_counts']:,} | {run['processes']} | {run['cpu_seconds']:.0f} | {run['megabytes']:.0f} "
            f"| {run['aer']:.4f} |"
        )
    return [*lines, "", "```", "python -m benchmarks.wordalign.million", "```", ""]
