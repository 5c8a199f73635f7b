"""Exact hard monotonic attention beside yoyodyne's: processor seconds an epoch and peak memory, in one run.

python -m benchmarks.yoyodyne --data data/g2p --peer PATH/TO/yoyodyne [--language dut] [--out FILE.json]

Both train the same words with like sizes and batches, one thread each, one after the other. The peer is installed in
an environment of its own (`pip install torch yoyodyne`). An epoch of it takes minutes, so that both are measured over
some updates: the processor time of a process that makes many of them, less that of one that makes few, so that starting
up does not count. Processor time depends far less than the clock on what else the machine does. Error rates need
training to the end and are not measured here.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from benchmarks.measure import report
from latentalign.reports.grid.processes import ONE_THREAD, python
from latentalign.reports.sounds.grid import SoundGrid, SoundSettings

BATCH, DROPOUT, EMBEDDING, HIDDEN = 64, 0.4, 128, 256
WORDS = 8000  # of training


def spend(command: list[str], log: Path) -> tuple[float, float]:
    """Processor seconds and peak MiB of a command; a failure ends the benchmark with its last words."""
    with log.open("wb") as stream:
        process = os.posix_spawnp(
            command[0],
            command,
            {**os.environ, **ONE_THREAD},
            file_actions=[(os.POSIX_SPAWN_DUP2, stream.fileno(), number) for number in (1, 2)],
        )
        _, status, used = os.wait4(process, 0)
    if status != 0:
        raise SystemExit(f"{' '.join(command[:4])} …: failed; {log.read_text(errors='replace')[-500:]}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 2**10


def measure(command: Callable[[int], list[str]], few: int, many: int, log: Path) -> dict[str, Any]:
    """Seconds of an update and of an epoch, from two processes that differ in their number of updates."""
    less, _ = spend(command(few), log)
    more, peak = spend(command(many), log)
    update = (more - less) / (many - few)
    return {
        "updates": [few, many],
        "processor_seconds": [round(less, 2), round(more, 2)],
        "seconds_an_update": round(update, 4),
        "seconds_an_epoch": round(update * WORDS / BATCH, 1),
        "peak_memory_mib": round(peak),
    }


def ours(train: Path, dev: Path, folder: Path) -> Callable[[int], list[str]]:
    """Our chain that never goes back, for so many updates."""

    def command(updates: int) -> list[str]:
        settings = {
            "data.folder": train.parent,
            "data.train.table": train.name,
            "data.valid.table": dev.name,
            "training.epochs": updates * BATCH / WORDS,
            "training.warmup_steps": 1,
        }
        changes = [f"--set={key}={value}" for key, value in settings.items()]
        out = folder / f"ours-{updates}"
        return python("-m", "latentalign", "train", "g2p-chain-monotone", "--out", str(out), *changes)

    return command


def theirs(peer: Path, train: Path, dev: Path, folder: Path) -> Callable[[int], list[str]]:
    """The peer's hard monotonic attention, for so many updates, without validation."""

    def command(updates: int) -> list[str]:
        encoder = {"dropout": DROPOUT, "embedding_size": EMBEDDING, "hidden_size": HIDDEN // 2}
        model = {
            "source_encoder": {"class_path": "yoyodyne.models.modules.LSTMEncoder", "init_args": encoder},
            "enforce_monotonic": True,
            "decoder_dropout": DROPOUT,
            "decoder_hidden_size": HIDDEN,
            "embedding_size": EMBEDDING,
        }
        config = {
            "model": {"class_path": "yoyodyne.models.HardAttentionLSTMModel", "init_args": model},
            "data": {
                "model_dir": str(folder / "peer"),
                "train": str(train),
                "val": str(dev),
                "target_sep": " ",
                "batch_size": BATCH,
            },
            "trainer": {
                "default_root_dir": str(folder),  # else its checkpoints go to where the command is called
                "accelerator": "cpu",
                "max_steps": updates,
                "limit_val_batches": 0,
                "num_sanity_val_steps": 0,
                "logger": False,
                "enable_progress_bar": False,
            },
        }
        path = folder / "peer.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        return [str(peer), "fit", "--config", str(path)]

    return command


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--peer", type=Path, required=True, help="the peer's command yoyodyne")
    parser.add_argument("--language", default="dut")
    parser.add_argument("--updates", type=int, nargs=2, default=(5, 25))
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args(arguments)
    grid = SoundGrid(SoundSettings(str(chosen.data), "."))
    grid.require(chosen.language)
    train, dev = (grid.table(chosen.language, split) for split in ("train", "dev"))
    assert train is not None
    assert dev is not None
    few, many = chosen.updates
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        found: dict[str, Any] = {"language": chosen.language}
        found["ours"] = measure(ours(train, dev, folder), 5 * few, 5 * many, folder / "log")
        found["yoyodyne"] = measure(theirs(chosen.peer, train, dev, folder), few, many, folder / "log")
    found["ratio"] = round(found["yoyodyne"]["seconds_an_epoch"] / found["ours"]["seconds_an_epoch"], 1)
    sys.stdout.write(yaml.safe_dump(found, sort_keys=False))
    report("yoyodyne", found, chosen.out)


if __name__ == "__main__":
    main(sys.argv[1:])
