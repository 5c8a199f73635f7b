"""Exact hard monotonic attention beside yoyodyne's: processor seconds an epoch, peak memory, errors, in one run.

python -m benchmarks.yoyodyne --data data/g2p --peer PATH/TO/yoyodyne [--language dut] [--network transformer]
python -m benchmarks.yoyodyne --data data/g2p --peer PATH/TO/yoyodyne --epochs 12    # and error rates: an hour or so

Both train the same words with the sizes and batches of the recipe, one thread each, one after the other. The peer is
installed in an environment of its own (`pip install torch yoyodyne`). An epoch of it takes minutes, so that speed is
measured over some updates: the processor time of a process that makes many of them, less that of one that makes few, so
that starting up does not count. Processor time depends far less than the clock on what else the machine does.

With `--epochs` both are trained to the end; what is reported of the peer, which searches greedily, is its last state.
The ratio of whole trainings is that of what users wait for. Steps of a trained peer take longer than its first ones.
Its loss is divided by padded lengths: no NLL to compare with.
"""

import argparse
import csv
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from benchmarks.measure import report
from latentalign.reports.grid.processes import ONE_THREAD, python
from latentalign.reports.sounds.grid import SoundGrid, SoundSettings, search, words_of
from latentalign.training.recipe.recipes import load_recipe
from latentalign.training.trained_run import load
from latentalign.translation.errors import error_rates

WORDS = 8000  # of training
MODULES = "yoyodyne.models.modules"


class Recurrent:
    """LSTMs on both sides."""

    name = "g2p-chain-monotone"
    recipe = load_recipe(name)
    peer_model = "HardAttentionLSTMModel"

    def peer_sizes(self) -> dict[str, Any]:
        """The recipe's sizes in the peer's words."""
        sizes = self.recipe.model
        encoder = {
            "dropout": sizes.dropout,
            "embedding_size": sizes.embedding_size,
            "hidden_size": sizes.memory_size // 2,  # of a direction
        }
        return {
            "source_encoder": {"class_path": f"{MODULES}.LSTMEncoder", "init_args": encoder},
            "decoder_hidden_size": sizes.decoder_size,
        }


class Transformer:
    """Self-attention on both sides; the peer's width is that of its word vectors."""

    name = "g2p-transformer-chain-monotone"
    recipe = load_recipe(name)
    peer_model = "HardAttentionTransformerModel"

    def peer_sizes(self) -> dict[str, Any]:
        """The recipe's sizes in the peer's words."""
        letters, phones = self.recipe.model.encoder, self.recipe.model.decoder
        encoder = {
            "dropout": self.recipe.model.dropout,
            "embedding_size": letters.width,
            "attention_heads": letters.heads,
            "hidden_size": letters.feed_forward,
            "layers": letters.layers,
        }
        return {
            "source_encoder": {"class_path": f"{MODULES}.TransformerEncoder", "init_args": encoder},
            "decoder_attention_heads": phones.heads,
            "decoder_hidden_size": phones.feed_forward,
            "decoder_layers": phones.layers,
        }


Network = Recurrent | Transformer
NETWORKS: dict[str, Network] = {"lstm": Recurrent(), "transformer": Transformer()}
BATCH = Recurrent.recipe.data.batch_size


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


def ours(network: Network, train: Path, dev: Path, folder: Path, epochs: float, **training: Any) -> list[str]:
    """The command that trains our chain that never goes back."""
    settings = {
        "data.folder": train.parent,
        "data.train.table": train.name,
        "data.valid.table": dev.name,
        "training.epochs": epochs,
        **{f"training.{name}": value for name, value in training.items()},
    }
    changes = [f"--set={key}={value}" for key, value in settings.items()]
    return python("-m", "latentalign", "train", network.name, "--out", str(folder), *changes)


def theirs(
    network: Network, peer: Path, train: Path, dev: Path, folder: Path, trainer: dict[str, Any]
) -> list[str]:
    """The command that trains the peer's hard monotonic attention."""
    model = {
        **network.peer_sizes(),
        "enforce_monotonic": True,
        "decoder_dropout": network.recipe.model.dropout,
        "embedding_size": network.recipe.model.embedding_size,
    }
    config = {
        "seed_everything": 1,
        "model": {"class_path": f"yoyodyne.models.{network.peer_model}", "init_args": model},
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
            "num_sanity_val_steps": 0,
            "enable_progress_bar": False,
            **trainer,
        },
    }
    path = folder / "peer.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return [str(peer), "fit", "--config", str(path)]


def speed(
    network: Network, peer: Path, train: Path, dev: Path, folder: Path, few: int, many: int
) -> dict[str, Any]:
    """Seconds an epoch and memory of both; ours, which is faster, over five times as many updates."""

    def our_updates(updates: int) -> list[str]:
        return ours(network, train, dev, folder / f"ours-{updates}", updates * BATCH / WORDS, warmup_steps=1)

    def their_updates(updates: int) -> list[str]:
        silent = {"max_steps": updates, "limit_val_batches": 0, "logger": False}
        return theirs(network, peer, train, dev, folder, silent)

    found: dict[str, Any] = {
        "ours": measure(our_updates, 5 * few, 5 * many, folder / "log"),
        "yoyodyne": measure(their_updates, few, many, folder / "log"),
    }
    return found | {
        "ratio": round(found["yoyodyne"]["seconds_an_epoch"] / found["ours"]["seconds_an_epoch"], 1)
    }


def peer_errors(folder: Path) -> list[float]:
    """Wrong words in per cent after every epoch, from the peer's journal; our runs beside it keep one, too."""
    (journal,) = (folder / "peer").rglob("metrics.csv")
    with journal.open(encoding="utf-8") as lines:
        accuracies = [float(row["val_accuracy"]) for row in csv.DictReader(lines) if row.get("val_accuracy")]
    return [round(100 * (1 - accuracy), 2) for accuracy in accuracies]


def errors(network: Network, peer: Path, train: Path, dev: Path, folder: Path, epochs: int) -> dict[str, Any]:
    """Word errors on development words after training to the end."""
    words = words_of(dev)
    seconds, _ = spend(ours(network, train, dev, folder / "ours", epochs), folder / "log")
    run = load(folder / "ours", device="cpu")
    found: dict[str, Any] = {"epochs": epochs, "ours": {"processor_seconds": round(seconds)}}
    for beam, name in ((1, "word_error_greedy"), (5, "word_error_beam_5")):
        texts = search(run, [letters for letters, _ in words], beam=beam)
        found["ours"][name] = round(error_rates(texts, [phones for _, phones in words])["word_error"], 2)
    logged = {
        "class_path": "lightning.pytorch.loggers.CSVLogger",
        "init_args": {"save_dir": str(folder / "peer")},
    }
    # it decodes the development words once, at the end
    to_the_end = {"max_epochs": epochs, "check_val_every_n_epoch": epochs, "logger": logged}
    theirs_took, _ = spend(theirs(network, peer, train, dev, folder, to_the_end), folder / "log")
    found["yoyodyne"] = {
        "processor_seconds": round(theirs_took),
        "word_error_greedy": peer_errors(folder)[-1],
    }
    return found | {"ratio_of_whole_trainings": round(theirs_took / seconds, 1)}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--peer", type=Path, required=True, help="the peer's command yoyodyne")
    parser.add_argument("--language", default="dut")
    parser.add_argument("--network", choices=NETWORKS, default="lstm")
    parser.add_argument("--updates", type=int, nargs=2, default=(5, 25))
    parser.add_argument("--epochs", type=int, help="train both for so long, and measure their errors")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args(arguments)
    grid = SoundGrid(SoundSettings(str(chosen.data), "."))
    grid.require(chosen.language)
    train, dev = (grid.table(chosen.language, split) for split in ("train", "dev"))
    assert train is not None
    assert dev is not None
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        network = NETWORKS[chosen.network]
        found: dict[str, Any] = {"language": chosen.language, "network": chosen.network}
        found |= speed(network, chosen.peer, train, dev, folder, *chosen.updates)
        if chosen.epochs:
            found["errors"] = errors(network, chosen.peer, train, dev, folder, chosen.epochs)
    sys.stdout.write(yaml.safe_dump(found, sort_keys=False))
    report("yoyodyne", found, chosen.out)


if __name__ == "__main__":
    main(sys.argv[1:])
