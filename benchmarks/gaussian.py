"""The auto-encoding bound against wake-sleep on digits: python benchmarks/gaussian.py --out docs/results/gaussian"""

import argparse
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from latentalign.files import write_atomic
from latentalign.gaussian.pictures import draw_curves, draw_plane, draw_samples
from latentalign.gaussian.study import StudyConfig, run_study, summarise
from latentalign.training.run.environment import git_revision


def table(rows: list[dict[str, Any]]) -> list[str]:
    """The summary as a Markdown table."""
    lines = [
        "| latent numbers | method | training bound | held-out bound | best held-out bound | KL | log p(x), held out |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        numbers = (row[key] for key in (
            "train_bound", "held_out_bound", "best_held_out_bound", "held_out_kl", "log_marginal"
        ))  # fmt: skip
        lines.append(
            f"| {row['latent']} | {row['method']} | " + " | ".join(f"{x:.2f}" for x in numbers) + " |"
        )
    return lines


def report(config: StudyConfig, rows: list[dict[str, Any]], command: str) -> str:
    """The page of the results."""
    return "\n".join(
        [
            "# The auto-encoding bound against wake-sleep",
            "",
            "Digits of scikit-learn as 64 black and white pixels, 80 % to learn from, 20 % held out. Both methods",
            f"start from the same weights and use the same networks (one hidden layer of {config.hidden} on either",
            f"side), the same Adam ({config.learning_rate:g}) and {config.epochs} epochs in batches of",
            f"{config.batch_size}. Nats a picture, means over seeds {', '.join(map(str, config.seeds))}; log p(x) by",
            "importance sampling from q with 1,000 samples. The method `auto-encoding` is the library's",
            "`Elbo(Pathwise(1))` with `Normal` latents.",
            "",
            *table(rows),
            "",
            *verdict(rows),
            "",
            "![Bound by pictures seen](curves.png)",
            "![Samples](samples.png)",
            "![The latent plane](plane.png)",
            "",
            "Command:",
            "",
            "```",
            command,
            "```",
            "",
        ]
    )


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Which method is above at every size, said from the numbers."""
    lines = []
    for key, name in (("held_out_bound", "Held-out bound"), ("log_marginal", "Held-out log p(x)")):
        pairs = {}
        for row in rows:
            pairs.setdefault(row["latent"], {})[row["method"]] = row[key]
        gaps = {latent: pair["auto-encoding"] - pair["wake-sleep"] for latent, pair in pairs.items()}
        told = ", ".join(f"{gap:+.2f} at {latent}" for latent, gap in gaps.items())
        lines.append(f"- {name}, auto-encoding minus wake-sleep: {told} latent numbers.")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/results/gaussian"))
    parser.add_argument("--epochs", type=int, default=StudyConfig.epochs)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    config = replace(StudyConfig(), epochs=arguments.epochs)
    curves, models, held_out = run_study(config, log=lambda line: print(line, file=sys.stderr, flush=True))
    rows = summarise(curves)
    out: Path = arguments.out
    command = f"python benchmarks/gaussian.py --out {out} --epochs {config.epochs}"
    draw_curves(curves, out / "curves.png")
    draw_samples(models, held_out, out / "samples.png")
    if 2 in config.sizes:
        draw_plane(models["auto-encoding", 2], held_out, out / "plane.png")
    data = {
        "command": command,
        "config": asdict(config),
        "torch": torch.__version__,
        "summary": rows,
        "curves": [asdict(c) for c in curves],
    }
    write_atomic(out / "results.json", json.dumps({"revision": git_revision(), **data}, indent=1) + "\n")
    write_atomic(out / "README.md", report(config, rows, command))
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
