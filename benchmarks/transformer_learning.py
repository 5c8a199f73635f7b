"""What Transformers have learnt after as many updates: JoeyNMT's and ours, by the same batches and rates.

python -m benchmarks.transformer_learning --data data/multi30k --peer-env DIR [--updates 453] [--only NAME]

Perplexity on the validation pairs, and BLEU on some of them by beam search without a penalty on the end of a sentence.
Every system begins with its own initial weights. The rate grows over 400 updates and then falls with the square root of
their number, as the recipe says. Tokens per second of processor time are reported beside it.
"""

import argparse
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.transformer import OWN, PEER, fresh, peer_task, prepare
from benchmarks.transformer import find_recipe as find_transformer
from benchmarks.translation.peer import Ask, _pairs, _renumber, conversation, find_environment
from benchmarks.translation.setting import Stopwatch, note
from latentalign.alignment.prediction import Exact, Predictor, SoftContext
from latentalign.files import read_lines, write_atomic
from latentalign.reports.grid.step_cost import BareLoop
from latentalign.training.loop.allocator import keep_freed_memory
from latentalign.training.loop.evaluation import evaluate_model
from latentalign.training.run.environment import git_revision
from latentalign.translation.beam.search import SearchOptions
from latentalign.translation.bleu import score_texts
from latentalign.translation.translate import Translator

PEAK, WARMUP = 1e-3, 400
BEAM, GROUP = 5, 64
MARGINAL = "latentalign, exact marginal after half of the updates"
PREDICTORS: dict[str, tuple[str, Predictor]] = {
    **dict.fromkeys(OWN, ("soft", SoftContext())),
    MARGINAL: ("exact", Exact()),
}
SEARCH = SearchOptions(beam=BEAM, length_penalty=1.0, eos_penalty=0.0, max_length_factor=1.5)


def rates(updates: int) -> list[float]:
    """The rate of every update: warm-up, then the inverse square root."""
    steps = range(1, updates + 1)
    return [PEAK * min(step / WARMUP, math.sqrt(WARMUP / step)) for step in steps]


def learn(loop: BareLoop, batches: list[Any], schedule: list[float], then: Any = None) -> Stopwatch:
    """Take all updates; with `then`, the second half of them by that objective."""
    watch = Stopwatch()
    for number, (batch, rate) in enumerate(zip(batches, schedule, strict=True)):
        if then is not None and number == len(batches) // 2:
            loop.objective = then
        for group in loop.optimizer.param_groups:
            group["lr"] = rate
        watch.add(lambda batch=batch: loop.step(batch)[0])
    loop.model.eval()
    return watch


def judge(
    loop: BareLoop, name: str, prepared: Any, sources: list[str], references: list[str]
) -> dict[str, float]:
    """Perplexity and BLEU on the validation pairs."""
    inference, predictor = PREDICTORS[name]
    found = evaluate_model(loop.model, prepared.valid, inference, with_posterior=False)
    translator = Translator(
        loop.model, prepared.assets, options=SEARCH, predictor=predictor, batch_size=GROUP
    )
    texts = [best.text for best, *_ in translator.translate(sources)]
    return {"ppl": found["ppl"], "bleu": score_texts(texts, references)["bleu"]}


def judge_peer(ask: Ask, assets: Any, sizes: list[int], references: list[str]) -> dict[str, float]:
    """The same of JoeyNMT's model, by its own likelihood and search."""
    found = ask({"do": "validate"})
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    groups = [order[start : start + GROUP] for start in range(0, len(order), GROUP)]
    pieces: Any = ask({"do": "decode", "groups": groups, "beam": BEAM})["pieces"]
    texts = {number: assets.target.decode(_renumber(row)) for number, row in zip(order, pieces, strict=True)}
    hypotheses = [texts[number] for number in range(len(sizes))]
    return {"ppl": math.exp(found["nll"]), "bleu": score_texts(hypotheses, references)["bleu"]}


def main() -> None:
    """Train everybody one after the other, judge, and write."""
    from latentalign.alignment.registry import build_objective

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("data/multi30k"))
    parser.add_argument("--peer-env", type=Path, default=Path("bench-results/joeynmt-env"))
    parser.add_argument("--updates", type=int, default=453, help="an epoch has 453")
    parser.add_argument(
        "--only", action="append", choices=PREDICTORS, metavar="NAME", help="of ours; may be repeated"
    )
    parser.add_argument("--sentences", type=int, default=256, help="validation sentences that are searched")
    parser.add_argument("--work", type=Path, default=Path("bench-results/transformer"))
    parser.add_argument("--out", type=Path, default=Path("bench-results/transformer-learning.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    options.work.mkdir(parents=True, exist_ok=True)
    recipe, prepared = prepare(options.data, options.work)
    assets, schedule = prepared.assets, rates(options.updates)
    per_epoch = len(prepared.train.plan(0, recipe.seed))
    plan = [
        indices
        for epoch in range(-(-options.updates // per_epoch))
        for indices in prepared.train.plan(epoch, recipe.seed)
    ][: options.updates]
    batches = [prepared.train.collate(indices) for indices in plan]
    sources, references = (
        list(read_lines(options.data / f"val.{side}.gz"))[: options.sentences] for side in ("de", "en")
    )
    results: dict[str, Any] = {}
    for name in options.only or PREDICTORS:
        loop = fresh(find_transformer(options.data, OWN.get(name, ())), prepared)
        then = build_objective({"name": "marginal", "prune": 0.005}) if name == MARGINAL else None
        watch = learn(loop, batches, schedule, then)
        results[name] = {
            **judge(loop, name, prepared, sources, references),
            "tokens_per_processor_second": watch.work / watch.processor,
        }
        note(f"{name}: {results[name]}")
    validation = [_pairs(prepared.valid.collate(indices)) for indices in prepared.valid.plan(-1, recipe.seed)]
    task = {**peer_task(recipe, assets, batches, sources), "validation": validation}
    setting: Any = SimpleNamespace(work=options.work, threads=1)
    with conversation(find_environment(options.peer_env), task, setting, "peer-learning") as ask:
        told = ask({"do": "train", "first": 0, "last": options.updates, "rates": schedule})
        speed = told["tokens"] / told["processor"]
        results[PEER] = {
            **judge_peer(ask, assets, [len(pieces) for pieces in task["sentences"]], references),
            "tokens_per_processor_second": speed,
        }
    content = {
        "revision": git_revision(),
        "updates": options.updates,
        "beam": BEAM,
        "sentences": len(sources),
        "validation": results,
    }
    write_atomic(options.out, json.dumps(content, indent=1) + "\n")
    print(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
