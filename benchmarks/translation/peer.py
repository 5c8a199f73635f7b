"""Training and decoding against JoeyNMT's recurrent model: same sizes, batches, pieces and threads, turn by turn."""

import itertools
import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from benchmarks.translation.setting import Setting, Stopwatch, note, summary, take_turns
from latentalign.alignment.prediction import SoftContext
from latentalign.alignment.registry import build_objective
from latentalign.reports.grid.step_cost import BareLoop
from latentalign.translation.beam.search import SearchOptions
from latentalign.translation.config import ModelConfig
from latentalign.translation.data.tokenizer import PAD, UNKNOWN
from latentalign.translation.network.model import TranslationModel
from latentalign.translation.translate import Translator

# it imports importlib_metadata without asking for it
REQUIREMENTS = ("torch==2.13.0", "joeynmt==2.3.0", "importlib_metadata")
SIZES = {"embedding": 256, "memory": 512, "decoder": 512}
BEAM, GROUP = 10, 64
# the peer's own search: no penalty on the end, at most 1.5 times the source; ours allows ten tokens more
SEARCH = SearchOptions(beam=BEAM, length_penalty=1.0, eos_penalty=0.0, max_length_factor=1.5)
STEPS_A_ROUND = 30
PEER, PEER_ALONE = "JoeyNMT", "JoeyNMT, its own batches"


def run(setting: Setting) -> dict[str, Any]:
    """Ratios of tokens and sentences a second; or the reason why there are none."""
    try:
        python = find_environment(setting.options.peer_env)
    except (OSError, subprocess.CalledProcessError) as error:
        return {"skipped": f"JoeyNMT cannot be installed: {_reason(error)}"}
    updates: int = setting.options.peer_updates
    rounds = max(2, updates // STEPS_A_ROUND)
    batches = setting.shuffled(updates, epoch=0)
    ours = {
        "latentalign": _fresh(setting, input_feeding=False),
        "latentalign, input feeding": _fresh(setting, input_feeding=True),
    }
    pairs = [_pairs(batch) for batch in batches]
    with (
        conversation(python, _task(setting, pairs), setting, "peer") as ask,
        conversation(python, _task(setting, mixed(pairs)), setting, "peer-alone") as ask_alone,
    ):
        training = take_turns(
            {
                PEER: _peer_trainer(ask, updates, rounds),
                PEER_ALONE: _peer_trainer(ask_alone, updates, rounds),
                **{name: _trainer(loop, batches, rounds) for name, loop in ours.items()},
            },
            rounds,
        )
        decoding, lengths = _decode_in_turns(setting, ask, {name: loop.model for name, loop in ours.items()})
    # the first round pays for what is set up once
    kept = {name: watches[1:] for name, watches in training.items()}
    return {
        "peer": list(REQUIREMENTS),
        "sizes": {**SIZES, "attention": SIZES["decoder"]},
        "target_size": len(setting.run.assets.target),
        "updates": updates,
        "beam": BEAM,
        "training": {name: summary(watches, kept[PEER]) for name, watches in kept.items()},
        "training_over_own_batches": {
            name: summary(watches, kept[PEER_ALONE]) for name, watches in kept.items()
        },
        "decoding": {
            name: {**summary(watches, decoding[PEER]), "tokens_per_sentence": lengths[name]}
            for name, watches in decoding.items()
        },
    }


def find_environment(folder: Path) -> Path:
    """The Python of the peer's environment, which is made the first time."""
    python = folder.resolve() / "bin" / "python"
    probe = [str(python), "-c", "import joeynmt.training"]
    if python.is_file() and subprocess.run(probe, capture_output=True, check=False).returncode == 0:
        return python
    note(f"installing {' '.join(REQUIREMENTS)} into {folder}")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True, text=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *REQUIREMENTS]
    subprocess.run(install, check=True, capture_output=True, text=True)
    subprocess.run(probe, check=True, capture_output=True, text=True)
    return python


def _reason(error: OSError | subprocess.CalledProcessError) -> str:
    told = getattr(error, "stderr", None) or str(error)
    return str(told).strip().splitlines()[-1]


Pairs = list[list[list[int]]]  # sources and targets of a batch, in the peer's numbering


def mixed(batches: list[Pairs]) -> list[Pairs]:
    """The same pairs in batches of the same number, in random order: as the peer's own loader makes them."""
    every = [pair for sources, targets in batches for pair in zip(sources, targets, strict=True)]
    random.Random(0).shuffle(every)
    size = max(len(sources) for sources, _ in batches)
    parts = [every[start : start + size] for start in range(0, len(every), size)]
    return [[[source for source, _ in part], [target for _, target in part]] for part in parts]


def _pairs(batch: Any) -> Pairs:
    return [_pieces(batch.source, batch.source_mask), _pieces(batch.target, batch.target_mask)]


def _task(setting: Setting, batches: list[Pairs]) -> dict[str, Any]:
    """Everything the worker has to know, in its own numbering: its unknown piece is 0 and its padding 1."""
    assets = setting.run.assets
    return {
        "threads": setting.threads,
        "sizes": SIZES,
        "dropout": 0.3,
        "learning_rate": 1e-3,
        "clip": 5.0,
        "source_size": len(assets.source),
        "target_size": len(assets.target),
        "batches": batches,
        "sentences": [_renumber(assets.encode_source(text)[0]) for text in setting.test_sentences],
    }


def _pieces(tokens: torch.Tensor, mask: torch.Tensor) -> list[list[int]]:
    return [_renumber(row[real].tolist()) for row, real in zip(tokens, mask, strict=True)]


def _renumber(pieces: list[int]) -> list[int]:
    swapped = {PAD: UNKNOWN, UNKNOWN: PAD}
    return [swapped.get(piece, piece) for piece in pieces]


Ask = Callable[[dict[str, Any]], dict[str, float]]


@contextmanager
def conversation(python: Path, task: dict[str, Any], setting: Setting, name: str) -> Iterator[Ask]:
    """Start the worker; what is yielded sends a command and waits for the answer."""
    path = setting.work / f"{name}-task.json"
    path.write_text(json.dumps(task), encoding="utf-8")
    worker = Path(__file__).with_name("peer_worker.py")
    log = (setting.work / f"{name}.log").open("w", encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": str(setting.threads), "PYTHONPATH": ""}
    process = subprocess.Popen(
        [str(python), "-P", str(worker), str(path)],  # -P: it shall not find modules of this folder
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env=environment,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    def ask(command: dict[str, Any]) -> dict[str, float]:
        stdin.write(json.dumps(command) + "\n")
        stdin.flush()
        answer = stdout.readline()
        if not answer:
            raise RuntimeError(f"JoeyNMT's process ended; see {log.name}")
        found: dict[str, float] = json.loads(answer)
        return found

    try:
        yield ask
    finally:
        with suppress(BrokenPipeError):  # it has ended already, and that is told elsewhere
            stdin.close()
        process.wait()
        stdout.close()
        log.close()


def _told(answer: dict[str, float], work: str) -> Stopwatch:
    watch = Stopwatch()
    watch.work, watch.seconds, watch.processor = answer[work], answer["seconds"], answer["processor"]
    return watch


def _stretches(updates: int, rounds: int) -> Iterator[tuple[int, int]]:
    edges = [round(updates * number / rounds) for number in range(rounds + 1)]
    return iter(itertools.pairwise(edges))


def _peer_trainer(ask: Ask, updates: int, rounds: int) -> Callable[[], Stopwatch]:
    stretches = _stretches(updates, rounds)

    def call() -> Stopwatch:
        first, last = next(stretches)
        return _told(ask({"do": "train", "first": first, "last": last}), "tokens")

    return call


def _trainer(loop: BareLoop, batches: list[Any], rounds: int) -> Callable[[], Stopwatch]:
    stretches = _stretches(len(batches), rounds)

    def call() -> Stopwatch:
        watch = Stopwatch()
        for batch in batches[slice(*next(stretches))]:
            watch.add(lambda batch=batch: loop.step(batch)[0])
        return watch

    return call


def _fresh(setting: Setting, *, input_feeding: bool) -> BareLoop:
    """A model of the peer's sizes: its attention is as wide as its decoder."""
    config = ModelConfig(
        embedding_size=SIZES["embedding"],
        memory_size=SIZES["memory"],
        decoder_size=SIZES["decoder"],
        attention_size=SIZES["decoder"],
        input_feeding=input_feeding,
        dropout=0.3,
    )
    torch.manual_seed(1)
    assets = setting.run.assets
    model = TranslationModel(
        config, source_size=len(assets.source), target_size=len(assets.target), needs_posterior=False
    )
    return BareLoop(model, build_objective("soft"), learning_rate=1e-3, clip=5.0, seed=1)


def _decode_in_turns(
    setting: Setting, ask: Ask, models: dict[str, TranslationModel]
) -> tuple[dict[str, list[Stopwatch]], dict[str, float]]:
    """Beam search by everybody, a part of the test sentences each turn; and tokens a sentence of each.

    Parts have sentences of all lengths, and within a part everybody gets groups of like lengths.
    """
    parts = max(1, min(4, len(setting.test_sentences) // GROUP))
    numbers = range(len(setting.test_sentences))
    assets = setting.run.assets
    sizes = [len(assets.source.encode(text)) for text in setting.test_sentences]
    produced: dict[str, list[float]] = {name: [] for name in (PEER, *models)}

    def peer(part: list[int]) -> Stopwatch:
        order = sorted(part, key=sizes.__getitem__)
        groups = [order[at : at + GROUP] for at in range(0, len(order), GROUP)]
        answer = ask({"do": "decode", "groups": groups, "beam": BEAM})
        produced[PEER].append(answer["tokens"] / answer["sentences"])
        return _told(answer, "sentences")

    def own(name: str, part: list[int]) -> Stopwatch:
        translator = Translator(
            models[name], assets, options=SEARCH, predictor=SoftContext(), batch_size=GROUP
        )
        texts = [setting.test_sentences[number] for number in part]
        watch, found = Stopwatch(), []
        watch.add(lambda: found.extend(translator.translate(texts)) or float(len(texts)))
        produced[name].append(statistics.mean(len(best.pieces) for best, *_ in found))
        return watch

    watches: dict[str, list[Stopwatch]] = {name: [] for name in produced}
    for start in range(parts):
        part = [number for number in numbers if number % parts == start]
        found = take_turns(
            {
                PEER: lambda part=part: peer(part),
                **{name: lambda name=name, part=part: own(name, part) for name in models},
            },
            1,
        )
        for name, watch in found.items():
            watches[name] += watch
    return watches, {name: statistics.mean(values) for name, values in produced.items()}
