"""What the trainer costs beside the model: the same steps by `latentalign train`'s machinery and by a bare loop.

python -m benchmarks.overhead --steps 60

Both run in one process with one thread, in turns; the bare loop computes the loss, its gradient, the clipped norm and
the update of fused Adam, and nothing else. Time is that of the processor, so that other work on the machine does not
count.
"""

import argparse
import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import yaml

from benchmarks.distributed import recipe as recipe_values
from benchmarks.measure import report
from latentalign.reports.grid.step_cost import BareLoop
from latentalign.training.loop.after_step import AfterEachStep
from latentalign.training.recipe.recipes import Recipe, build_recipe
from latentalign.training.recipe.schedule import schedule_of
from latentalign.training.train import train
from latentalign.translation.generated.corpus import write_corpus


def bare_loop(recipe: Recipe, folder: Path) -> list[float]:
    """Processor seconds of every step of a loop without a trainer."""
    prepared = recipe.prepare(folder, lambda text: None)
    schedule = schedule_of(recipe)
    torch.manual_seed(1)
    model = recipe.task.build_model(recipe.model, prepared.assets, needs_posterior=schedule.needs_posterior)
    training = recipe.training
    loop = BareLoop(
        model, schedule.last.objective, learning_rate=training.learning_rate, clip=training.gradient_clip
    )
    times = []
    for indices in prepared.train.plan(0, recipe.seed):
        started = time.process_time()
        loop.step(prepared.train.collate(indices))
        times.append(time.process_time() - started)
    return times


def trained(recipe: Recipe, folder: Path) -> list[float]:
    """Processor seconds between the ends of steps under the trainer: fetching, logging and progress included."""
    ends: list[float] = []
    original = AfterEachStep.on_train_batch_end

    def watched(self: AfterEachStep, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        ends.append(time.process_time())

    AfterEachStep.on_train_batch_end = watched  # type: ignore[method-assign]
    try:
        train(recipe, folder, echo=False)
    finally:
        AfterEachStep.on_train_batch_end = original  # type: ignore[method-assign]
    times = [after - before for before, after in pairwise(ends)]
    return times[:-1]  # the last step validates and saves


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=Path("bench-results/overhead.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, list[float]] = {"bare": [], "trainer": []}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_corpus(folder, sizes={"train": options.batch * options.steps, "valid": options.batch})
        values = recipe_values(folder, objective="soft", batch=options.batch, steps=options.steps)
        recipe = build_recipe(yaml.safe_load(yaml.safe_dump(values)))
        for number in range(options.rounds):
            (folder / f"bare-{number}").mkdir()
            results["bare"].append(statistics.median(bare_loop(recipe, folder / f"bare-{number}")))
            results["trainer"].append(statistics.median(trained(recipe, folder / f"run-{number}")))
    bare, full = (min(times) for times in results.values())
    print(
        f"bare loop {1000 * bare:.1f} ms a step, trainer {1000 * full:.1f} ms: {100 * (full / bare - 1):+.1f} %"
    )
    report(
        "overhead",
        {"milliseconds": {name: [1000 * t for t in times] for name, times in results.items()}},
        options.json,
    )


if __name__ == "__main__":
    main()
