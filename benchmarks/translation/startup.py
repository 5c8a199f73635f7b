"""What a user waits for before anything happens: the command line, a cold translation, reading text."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.translation.setting import Setting, note
from latentalign.translation.data.corpus import PairFilter, build_corpus, read_pairs
from latentalign.translation.task import TranslationTask


def run(setting: Setting) -> dict[str, Any]:
    """Seconds of whole processes, and sentence pairs a minute."""
    rounds = setting.options.rounds
    latentalign = [sys.executable, "-m", "latentalign"]
    with tempfile.TemporaryDirectory() as scratch:
        text = Path(scratch) / "one.txt"
        text.write_text(setting.test_sentences[0] + "\n", encoding="utf-8")
        translate = [*latentalign, "translate", str(setting.run_folder), "--input", str(text)]
        found = {
            "help_seconds": _median(lambda: _call([*latentalign, "--help"]), rounds),
            "translate_seconds": _median(lambda: _call(translate), rounds),
        }
    return {**found, **_reading(setting, rounds)}


def _median(action: Callable[[], float], rounds: int) -> float:
    action()  # whatever has to come from the disk
    return statistics.median(action() for _ in range(rounds))


def _call(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env={**os.environ})
    return time.perf_counter() - started


def _reading(setting: Setting, rounds: int) -> dict[str, Any]:
    """Pairs read from files, cut into pieces and kept as arrays: by one process with fresh tokenizers each time."""
    note("reading and tokenising")
    data = setting.run.config.data
    rates = []
    for _ in range(rounds):
        assets = TranslationTask().load_assets(setting.run_folder)  # no word is known yet
        wall, processor = time.perf_counter(), time.process_time()
        corpus = build_corpus(
            read_pairs(data.train, data.path), assets, keep=PairFilter.of(data), name="train"
        )
        rates.append((time.perf_counter() - wall, time.process_time() - processor))
    pairs = corpus.report.read
    return {
        "pairs": pairs,
        "pairs_per_minute": 60 * pairs / statistics.median(wall for wall, _ in rates),
        "pairs_per_processor_minute": 60 * pairs / statistics.median(processor for _, processor in rates),
    }
