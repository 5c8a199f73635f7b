"""Is the code as fast as it was? Training steps of two revisions, turn by turn.

python -m benchmarks.revisions bb7a4fe HEAD --data data/multi30k

Each revision is checked out beside the other and trains by its own command, from the same recipe and settings. A short
and a longer run of each differ by nothing but updates, so what is said is processor time an update: starting,
tokenising and validating cancel out. Ratios above 1 say that the second revision is faster.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from latentalign.files import write_atomic

RECIPE = "recipes/multi30k-de-en.yaml"
OBJECTIVES = {
    "soft": "soft",
    "marginal": "{name: marginal, prune: 0.01}",
    "variational": "{name: variational, estimator: reinforce}",
}


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("revisions", nargs=2)
    add("--data", type=Path, default=Path("data/multi30k"))
    add("--lengths", type=float, nargs=2, default=(0.05, 0.2), help="epochs of the short and the longer run")
    add("--rounds", type=int, default=3)
    add("--out", type=Path, default=Path("bench-results/revisions.json"))
    return parser.parse_args()


def processor_seconds(checkout: Path, objective: str, epochs: float, data: Path) -> float:
    """What it costs to train that long by the command of a checkout."""
    settings = {"data.folder": data.resolve(), "objective": OBJECTIVES[objective], "training.epochs": epochs}
    changes = [f"--set={key}={value}" for key, value in settings.items()]
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "latentalign", "train", RECIPE, *changes, "--out", f"{folder}/run"],
            cwd=checkout, env=environment, check=True, capture_output=True,
        )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure, print and keep the ratios."""
    arguments = parse()
    short, longer = arguments.lengths
    costs: dict[str, dict[str, list[float]]] = {
        objective: {revision: [] for revision in arguments.revisions} for objective in OBJECTIVES
    }
    with tempfile.TemporaryDirectory() as folder:
        checkouts = {revision: Path(folder) / revision for revision in arguments.revisions}
        for revision, path in checkouts.items():
            subprocess.run(["git", "worktree", "add", "--quiet", "--detach", path, revision], check=True)
        try:
            for _ in range(arguments.rounds):
                for objective, found in costs.items():
                    for revision, path in checkouts.items():
                        spent = [
                            processor_seconds(path, objective, epochs, arguments.data)
                            for epochs in (short, longer)
                        ]
                        found[revision].append((spent[1] - spent[0]) / (longer - short))
        finally:
            for path in checkouts.values():
                subprocess.run(["git", "worktree", "remove", "--force", path], check=True)
    ratios = {
        objective: [old / new for old, new in zip(*found.values(), strict=True)]
        for objective, found in costs.items()
    }
    for objective, found in ratios.items():
        rounds = ", ".join(f"{ratio:.2f}" for ratio in found)
        print(f"{objective:12} {statistics.median(found):.2f} times as fast (rounds: {rounds})")
    content = {"revisions": arguments.revisions, "seconds_an_epoch": costs, "ratios": ratios}
    write_atomic(arguments.out, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
