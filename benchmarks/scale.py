"""WMT-17 at the paper's scale on 1, 8 and 64 devices: measured pieces, a stated model of their sum.

python -m benchmarks.scale                      # measures here, prints the tables of docs/scale.md
python -m benchmarks.scale --measured docs/results/scale.json       # prints them from figures measured before

Measured: the parameters of the model of the recipe wmt17-en-de (so the bytes of a gradient), the time of a training
step against its number of target tokens, and what an all-reduce of such a gradient costs two processes here.
Assumed: what stands in `benchmarks/scale_model.py`, nothing else.
"""

import argparse
import json
import os
import socket
import statistics
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import distributed, multiprocessing

from benchmarks.measure import report
from benchmarks.scale_model import Assumptions, tables
from latentalign.alignment import build_objective
from latentalign.training.recipe.recipes import load_recipe
from latentalign.translation.data.dataset import PairBatch
from latentalign.translation.network.model import TranslationModel


def build(assumptions: Assumptions, objective: Any, *, input_feeding: bool) -> tuple[TranslationModel, Any]:
    """The recipe's model for that vocabulary, with the objective."""
    config = load_recipe("wmt17-en-de").model.model_copy(update={"input_feeding": input_feeding})
    chosen = build_objective(objective)
    size = assumptions.vocabulary
    model = TranslationModel(
        config,  # type: ignore[arg-type]
        source_size=size,
        target_size=size,
        needs_posterior=chosen.needs_posterior,
    )
    return model, chosen


def random_batch(sentences: int, assumptions: Assumptions) -> PairBatch:
    """Sentences of one length: no padding, so tokens are sentences × length."""
    shape = (sentences, assumptions.length)
    source, target = (torch.randint(4, assumptions.vocabulary, shape) for _ in range(2))
    mask = torch.ones(shape, dtype=torch.bool)
    return PairBatch(source, mask, target, mask)


def step_seconds(model: TranslationModel, objective: Any, batch: PairBatch, rounds: int) -> dict[str, float]:
    """Median processor seconds of the parts of a step on one core; other work on the machine hardly counts."""
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    parts: dict[str, list[float]] = {"gradient": [], "update": []}
    for number in range(rounds + 1):
        started = time.process_time()
        problem = model.problem(batch, with_posterior=objective.needs_posterior)
        bound = objective(problem)
        (-bound.surrogate.mean()).backward()
        middle = time.process_time()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        optimizer.zero_grad()
        if number:  # the first round allocates
            parts["gradient"].append(middle - started)
            parts["update"].append(time.process_time() - middle)
    return {name: statistics.median(times) for name, times in parts.items()}


def multiply_adds_a_token(model: TranslationModel) -> float:
    """Weights that a target token is multiplied with: all but the word vectors, which are looked up.

    The encoder's weights meet source tokens, of which there are about as many.
    """
    looked_up = model.source_embedding.weight.numel() + model.target_embedding.weight.numel()
    return float(sum(parameter.numel() for parameter in model.parameters()) - looked_up)


def measure_steps(assumptions: Assumptions, rounds: int) -> dict[str, Any]:
    """Step times of the objectives at two sizes of a batch: a fixed part and a part for each token."""
    reinforce = {"name": "variational", "estimator": {"name": "reinforce", "samples": 1}}
    found: dict[str, Any] = {}
    for name, objective, feeding in (
        ("soft", "soft", True),
        ("variational", reinforce, True),
        ("variational without input feeding", reinforce, False),
    ):
        model, chosen = build(assumptions, objective, input_feeding=feeding)
        times = {}
        for sentences in (4, 16):
            batch = random_batch(sentences, assumptions)
            times[sentences * assumptions.length] = step_seconds(model, chosen, batch, rounds)
        few, many = sorted(times)
        slope = (times[many]["gradient"] - times[few]["gradient"]) / (many - few)
        found[name] = {
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "theta": sum(parameter.numel() for parameter in model.theta()),
            "phi": sum(parameter.numel() for parameter in model.phi()),
            "seconds": {str(tokens): parts for tokens, parts in times.items()},
            "seconds_a_token": slope,
            "seconds_fixed": max(times[few]["gradient"] - slope * few, 0.0) + times[many]["update"],
            "multiply_adds_a_token": multiply_adds_a_token(model),
            "by_vocabulary": sum(
                parameter.numel()
                for parameter in model.parameters()
                if assumptions.vocabulary in parameter.shape
            ),
        }
        print(f"measured {name}: {1e3 * slope:.2f} ms a target token", file=sys.stderr)
        del model
    return found


def _reduce(rank: int, port: int, count: int, rounds: int, pipe: Any) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", rank=rank, world_size=2)
    tensor = torch.ones(count)
    times = []
    for _ in range(rounds + 1):
        distributed.barrier()
        started = time.process_time()
        distributed.all_reduce(tensor)
        times.append(time.process_time() - started)
        tensor.fill_(1.0)
    if rank == 0:
        pipe.send(statistics.median(times[1:]))
    distributed.destroy_process_group()


def measure_all_reduce(count: int, rounds: int) -> float:
    """Processor seconds of each of two processes here for an all-reduce of that many numbers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    processes = [
        context.Process(target=_reduce, args=(rank, port, count, rounds, sender)) for rank in range(2)
    ]
    for process in processes:
        process.start()
    seconds: float = receiver.recv()
    for process in processes:
        process.join()
    return seconds


def main() -> None:
    """Measure or read, then print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measured", type=Path, help="figures of an earlier run")
    parser.add_argument("--json", type=Path, default=Path("bench-results/scale.json"))
    options = parser.parse_args()
    assumptions = Assumptions()
    if options.measured is not None:
        figures = json.loads(options.measured.read_text(encoding="utf-8"))
    else:
        torch.set_num_threads(1)
        steps = measure_steps(assumptions, options.rounds)
        count = steps["variational"]["parameters"]
        figures = {
            "steps": steps,
            "all_reduce": measure_all_reduce(count, options.rounds),
        }
        report("scale", {**figures, "assumptions": asdict(assumptions)}, options.json)
    size = figures["steps"]["variational"]["parameters"] * 4 / 1e6
    cost = figures["all_reduce"]
    print(
        f"gradient {size:,.0f} MB; its all-reduce costs each of two processes here {cost:.2f} processor seconds"
    )
    for name, found in figures["steps"].items():
        print(
            f"{name}: {1e3 * found['seconds_a_token']:.2f} ms a token + {1e3 * found['seconds_fixed']:.0f} ms a step"
        )
    print(tables(figures, assumptions))


if __name__ == "__main__":
    main()
