"""Throughput of two processes with one thread each against one process with two threads, at the same global batch.

make bench-distributed           # or: python -m benchmarks.distributed --rounds 3 --json bench-results/distributed.json

Both train the same recipe through the command line: the size of multi30k-de-en on generated text. The runs take
turns, so that whatever else the machine does falls on both; the best round of each counts, since noise only slows.
"""

import argparse
import csv
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from benchmarks.measure import report

LOG_EVERY = 10
KINDS = {"one process, two threads": (1, 2), "two processes, one thread each": (2, 1)}


def recipe(folder: Path, *, objective: str, batch: int, steps: int) -> dict[str, Any]:
    """The model of the multi30k recipes, trained for some steps."""
    return {
        "task": "translation",
        "data": {
            "folder": str(folder),
            "train": {"source": "train.de", "target": "train.en"},
            "valid": {"source": "valid.de", "target": "valid.en"},
            "tokenizer": {"kind": "whitespace"},
            "batch_size": batch,
        },
        "model": {"embedding_size": 256, "memory_size": 512, "decoder_size": 512, "attention_size": 256},
        "objective": objective,
        "training": {
            "epochs": 1.0,
            "validate_every": None,
            "log_every": LOG_EVERY,
            "checkpoint": {"every_minutes": None},
        },
    }


def train(path: Path, out: Path, *, processes: int, threads: int) -> float:
    """Tokens a second of a run: the median over its logged stretches after the first."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--master-port", str(port)]
    command = [sys.executable, *(launcher if processes > 1 else []), "-m", "latentalign", "train", str(path)]
    done = subprocess.run(
        [*command, "--out", str(out), "--set", f"training.threads={threads}"],
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"training failed:\n{done.stderr}")
    (table,) = (out / "logs" / "csv").rglob("metrics.csv")
    with table.open() as stream:
        speeds = [
            float(row["train/tokens_per_second"]) for row in csv.DictReader(stream) if row["train/loss"]
        ]
    return statistics.median(speeds[1:])


def main() -> None:
    """Compare and print."""
    from latentalign.translation.generated.corpus import write_corpus

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--objective", default="soft")
    parser.add_argument("--batch", type=int, default=64, help="sentence pairs an update, over all processes")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=Path("bench-results/distributed.json"))
    options = parser.parse_args()
    speeds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_corpus(folder, sizes={"train": options.batch * options.steps, "valid": options.batch})
        path = folder / "recipe.yaml"
        values = recipe(folder, objective=options.objective, batch=options.batch, steps=options.steps)
        path.write_text(yaml.safe_dump(values))
        for number in range(options.rounds):
            for kind, (processes, threads) in KINDS.items():
                speed = train(path, folder / f"{processes}-{number}", processes=processes, threads=threads)
                speeds[kind].append(speed)
                print(f"round {number + 1}, {kind}: {speed:,.0f} target tokens/s", file=sys.stderr)
    one, two = (max(values) for values in speeds.values())
    print(f"{options.objective}, global batch {options.batch}, best of {options.rounds} rounds:")
    for kind, value in zip(KINDS, (one, two), strict=True):
        print(f"  {kind:<32}{value:>9,.0f} target tokens/s")
    print(f"  ratio{'':<27}{two / one:>9.2f}  (at least 0.90 is asked for)")
    facts = {"objective": options.objective, "batch": options.batch, "steps": options.steps}
    report("distributed", {**facts, "tokens_per_second": speeds, "ratio": two / one}, options.json)


if __name__ == "__main__":
    main()
