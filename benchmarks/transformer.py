"""The Transformer beside JoeyNMT's: the same pieces, sizes, batches and updates, turn by turn; memory by objective.

python -m benchmarks.transformer --data data/multi30k --peer-env DIR [--updates 60] [--sentences 128]

The peer lives in an environment of its own (`benchmarks/translation/peer.py` says which packages). Ratios are of
processor time, so that other work on the machine falls on nobody; the first round pays for what is set up once.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.measure import measure
from benchmarks.translation.peer import Ask, _pairs, _renumber, conversation, find_environment
from benchmarks.translation.setting import Stopwatch, load_averages, note, take_turns
from latentalign.alignment.prediction import Exact, SoftContext
from latentalign.alignment.registry import build_objective
from latentalign.files import read_lines
from latentalign.reports.grid.step_cost import BareLoop, longest_batch, spread_batches
from latentalign.training.loop.allocator import keep_freed_memory
from latentalign.training.recipe.recipes import load_recipe
from latentalign.training.run.environment import git_revision
from latentalign.translation.beam.search import SearchOptions
from latentalign.translation.translate import Translator

RECIPE = "multi30k-de-en-transformer"
PEER = "JoeyNMT"
GROUP = 64  # sentences searched together
# what is changed in the recipe
OWN: dict[str, tuple[str, ...]] = {
    "latentalign": (),
    "latentalign, dot products": ("model.score=dot",),
    "latentalign, cross layers": ("model.decoder.cross_layers=3",),
}
RATE, CLIP = 1e-4, 1.0  # small enough to need no warm-up


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data", type=Path, default=Path("data/multi30k"))
    add("--peer-env", type=Path, default=Path("bench-results/joeynmt-env"))
    add("--updates", type=int, default=60, help="of each system before it decodes")
    add("--rounds", type=int, default=6)
    add("--sentences", type=int, default=128)
    add("--beam", type=int, default=5)
    add("--work", type=Path, default=Path("bench-results/transformer"), help="tokenizers; used again")
    add("--out", type=Path, default=Path("bench-results/transformer.json"))
    return parser.parse_args()


def find_recipe(data: Path, changes: Iterable[str] = ()) -> Any:
    """The recipe on these data."""
    return load_recipe(RECIPE, [f"data.folder={data.resolve()}", *changes])


def prepare(data: Path, work: Path) -> tuple[Any, Any]:
    """The recipe, and its tokenizers and batches; the tokenizers are learnt once for a folder."""
    recipe = find_recipe(data)
    return recipe, recipe.prepare(work, lambda line: None)


def fresh(recipe: Any, prepared: Any, objective: Any = "soft", rate: float = RATE) -> BareLoop:
    """Training steps of a new model."""
    torch.manual_seed(1)
    model = recipe.task.build_model(recipe.model, prepared.assets, needs_posterior=False)
    return BareLoop(model, build_objective(objective), learning_rate=rate, clip=CLIP, seed=1)


def peer_task(recipe: Any, assets: Any, batches: list[Any], texts: list[str]) -> dict[str, Any]:
    """What the peer has to know: the recipe's sizes, batches, and sentences to search, in its own numbering."""
    sizes = recipe.model.encoder
    return {
        "threads": 1,
        "transformer": {name: getattr(sizes, name) for name in ("layers", "heads", "width", "feed_forward")},
        "dropout": recipe.model.dropout,
        "learning_rate": RATE,
        "clip": CLIP,
        "source_size": len(assets.source),
        "target_size": len(assets.target),
        "batches": [_pairs(batch) for batch in batches],
        "sentences": [_renumber(assets.encode_source(text)[0]) for text in texts],
    }


def train_in_turns(ask: Ask, loops: dict[str, BareLoop], batches: list[Any], rounds: int) -> dict[str, Any]:
    """Everybody the same updates; target tokens a second of processor time, and the ratio to the peer's."""
    edges = [round(len(batches) * number / rounds) for number in range(rounds + 1)]
    turn = dict.fromkeys((PEER, *loops), 0)

    def stretch(name: str) -> tuple[int, int]:
        turn[name] += 1
        return edges[turn[name] - 1], edges[turn[name]]

    def peer() -> Stopwatch:
        first, last = stretch(PEER)
        answer = ask({"do": "train", "first": first, "last": last})
        return _watch(answer["tokens"], answer)

    def own(name: str) -> Stopwatch:
        watch = Stopwatch()
        for batch in batches[slice(*stretch(name))]:
            watch.add(lambda batch=batch: loops[name].step(batch)[0])
        return watch

    found = take_turns({PEER: peer, **{name: lambda name=name: own(name) for name in loops}}, rounds)
    return compared({name: watches[1:] for name, watches in found.items()})


def decode_in_turns(
    ask: Ask, loops: dict[str, BareLoop], assets: Any, texts: list[str], beam: int
) -> dict[str, Any]:
    """Beam search of the same sentences in groups of like lengths; tokens a sentence beside it."""
    order = sorted(range(len(texts)), key=lambda number: len(assets.source.encode(texts[number])))
    # models of few updates end at once here: we go on to the limit, 1.5 times the source and ten steps more. The peer
    # ends by its own rules, at the latest at 1.5 times the longest source
    options = SearchOptions(beam=beam, length_penalty=1.0, eos_penalty=100.0, max_length_factor=1.5)
    lengths: dict[str, list[float]] = {PEER: []}

    def peer(group: list[int]) -> Stopwatch:
        answer = ask({"do": "decode", "groups": [group], "beam": beam})
        lengths[PEER].append(answer["tokens"] / len(group))
        return _watch(float(len(group)), answer)

    def own(name: str, predictor: Any, label: str, group: list[int]) -> Stopwatch:
        translator = Translator(
            loops[name].model, assets, options=options, predictor=predictor, batch_size=GROUP
        )
        watch, found = Stopwatch(), []
        sentences = [texts[number] for number in group]
        watch.add(lambda: found.extend(translator.translate(sentences)) or float(len(group)))
        lengths.setdefault(label, []).append(statistics.mean(len(best.pieces) for best, *_ in found))
        return watch

    watches: dict[str, list[Stopwatch]] = {}
    contenders = {name: (name, SoftContext()) for name in loops} | {
        "latentalign, exact": ("latentalign", Exact())
    }
    for start in range(0, len(order), GROUP):
        group = order[start : start + GROUP]
        calls = {
            label: lambda label=label, name=name, predictor=predictor, group=group: own(
                name, predictor, label, group
            )
            for label, (name, predictor) in contenders.items()
        }
        for name, watch in take_turns({PEER: lambda group=group: peer(group), **calls}, 1).items():
            watches.setdefault(name, []).extend(watch)
    result = compared(watches)
    return {
        name: {**row, "tokens_a_sentence": statistics.mean(lengths[name])} for name, row in result.items()
    }


def compared(watches: dict[str, list[Stopwatch]]) -> dict[str, Any]:
    """Work a second of processor time over all rounds, and over the peer's in the same rounds."""
    rates = {
        name: sum(watch.work for watch in each) / sum(watch.processor for watch in each)
        for name, each in watches.items()
    }
    rounds = {name: [watch.work / watch.processor for watch in each] for name, each in watches.items()}
    return {
        name: {
            "per_processor_second": round(rate, 1),
            "over_peer": round(rate / rates[PEER], 3),
            "over_peer_by_round": [
                round(mine / theirs, 2) for mine, theirs in zip(rounds[name], rounds[PEER], strict=True)
            ],
        }
        for name, rate in rates.items()
    }


def _watch(work: float, answer: dict[str, float]) -> Stopwatch:
    watch = Stopwatch()
    watch.work, watch.seconds, watch.processor = work, answer["seconds"], answer["processor"]
    return watch


def make_steps(data: str, work: str, objective: Any) -> Any:
    """Two updates on batches of all lengths and on the longest one, for `measure`."""
    recipe, prepared = prepare(Path(data), Path(work))
    loop = fresh(recipe, prepared, objective)
    batches = [*spread_batches(prepared.train, 2), longest_batch(prepared.train)]
    return lambda: [loop.step(batch) for batch in batches]


def memory_of(data: Path, work: Path) -> dict[str, Any]:
    """The largest memory of a training process by objective; an untrained model is the worst case for pruning."""
    objectives = {
        "soft": "soft",
        "marginal": "marginal",
        "marginal, pruned": {"name": "marginal", "prune": 0.005},
    }
    peaks = {
        name: measure(make_steps, rounds=0, threads=1, data=str(data), work=str(work), objective=objective)[
            "peak_mib"
        ]
        for name, objective in objectives.items()
    }
    return {
        name: {"peak_mib": round(peak), "over_soft": round(peak / peaks["soft"], 3)}
        for name, peak in peaks.items()
    }


def main() -> None:
    """Measure and write."""
    options = parse()
    torch.set_num_threads(1)
    keep_freed_memory()
    before = load_averages()
    options.work.mkdir(parents=True, exist_ok=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    recipe, prepared = prepare(options.data, options.work)
    loops = {name: fresh(find_recipe(options.data, changes), prepared) for name, changes in OWN.items()}
    assets = prepared.assets
    results: dict[str, Any] = {"revision": git_revision()}
    plan = prepared.train.plan(0, recipe.seed)[: options.updates]
    batches = [prepared.train.collate(indices) for indices in plan]
    texts = list(read_lines(options.data / "test_2016_flickr.de.gz"))[: options.sentences]
    task = peer_task(recipe, assets, batches, texts)
    setting: Any = SimpleNamespace(work=options.work, threads=1)
    with conversation(find_environment(options.peer_env), task, setting, "peer") as ask:
        results["training"] = train_in_turns(ask, loops, batches, options.rounds)
        note(f"training: {results['training']}")
        results["decoding"] = decode_in_turns(ask, loops, assets, texts, options.beam)
    note(f"decoding: {results['decoding']}")
    results["memory"] = memory_of(options.data, options.work)
    results["facts"] = {
        "when": time.strftime("%Y-%m-%d"),
        "sizes": task["transformer"],
        "updates": options.updates,
        "sentences": len(texts),
        "beam": options.beam,
        "torch": torch.__version__,
        "threads": 1,
        "load": [before[0], load_averages()[0]],
    }
    options.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
