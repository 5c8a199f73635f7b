"""A large corpus to the end: python -m benchmarks.wordalign.million [--pairs N] [--most-counts N …] [--work DIR]

Generated pairs (words by Zipf's law, swaps, words without a link) whose links are known, learnt from and aligned by
`latentalign align` in a process of its own; CPU and wall seconds, peak memory, and the error of the links, for each
bound of the counts that are kept while learning.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.wordalign.systems import timed
from latentalign.files import write_atomic
from latentalign.text.links import Link, read_links
from latentalign.training.run.environment import git_revision

WORDS = 20_000
GOLD = 1000  # of the first pairs the links are measured


def generate(pairs: int, seed: int = 0) -> Iterator[tuple[str, str, set[Link]]]:
    chance = np.random.default_rng(seed)
    weights = 1 / np.arange(1, WORDS + 1)
    cumulative = np.cumsum(weights / weights.sum())
    for begin in range(0, pairs, 10_000):
        lengths = chance.integers(3, 11, min(10_000, pairs - begin))
        words = np.searchsorted(cumulative, chance.random(lengths.sum())).tolist()
        draws = chance.random(2 * lengths.sum()).tolist()
        first = 0
        for length in lengths.tolist():
            yield _pair(words[first : first + length], draws[2 * first : 2 * (first + length)])
            first += length


def _pair(words: list[int], draws: list[float]) -> tuple[str, str, set[Link]]:
    order = list(range(len(words)))
    for place in range(len(order) - 1):
        if draws[place] < 0.15:
            order[place], order[place + 1] = order[place + 1], order[place]
    target, links = [], set()
    for place, position in enumerate(order):
        if draws[len(words) + place] < 0.1:
            target.append("the")
        links.add((position, len(target)))
        target.append(f"e{words[position]}")
    return " ".join(f"f{word}" for word in words), " ".join(target), links


def measure(pairs: int, processes: int, most_counts: int, work: Path) -> dict[str, Any]:
    work.mkdir(parents=True, exist_ok=True)
    gold: list[set[Link]] = []
    files = work / "million.f", work / "million.e"
    with files[0].open("w") as left, files[1].open("w") as right:
        for source, target, links in generate(pairs):
            left.write(source + "\n")
            right.write(target + "\n")
            if len(gold) < GOLD:
                gold.append(links)
    command = [sys.executable, "-m", "latentalign", "align", "--source", str(files[0]), "--target", str(files[1]),
               "--save", str(work / "million-aligner"), "--processes", str(processes),
               "--most-counts", str(most_counts)]  # fmt: skip
    start = time.perf_counter()
    seconds, megabytes = timed(command, work / "million.links")
    wall = time.perf_counter() - start
    found = [links.sure for links in read_links(work / "million.links")]
    hits = sum(len(one & other) for one, other in zip(found, gold, strict=False))
    error = 1 - 2 * hits / (sum(len(links) for links in found[: len(gold)]) + sum(map(len, gold)))
    return {
        "revision": git_revision(),
        "pairs": len(found),
        "processes": processes,
        "most_counts": most_counts,
        "cpu_seconds": seconds,
        "wall_seconds": wall,
        "megabytes": megabytes,
        "aer": error,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--most-counts", type=int, nargs="+", default=[20_000_000, 2_000_000])
    parser.add_argument("--work", type=Path, default=Path("runs/wordalign"))
    parser.add_argument("--out", type=Path, default=Path("docs/results/wordalign/million.json"))
    options = parser.parse_args()
    runs = [measure(options.pairs, options.processes, most, options.work) for most in options.most_counts]
    write_atomic(options.out, json.dumps({"revision": git_revision(), "runs": runs}, indent=1) + "\n")
    print(json.dumps(runs))


if __name__ == "__main__":
    main()
