"""What the measurements share: the data, the recipes, the trained states and how contenders take turns."""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from latentalign.alignment.registry import build_objective
from latentalign.files import read_lines
from latentalign.reports.grid.step_cost import BareLoop, spread_batches
from latentalign.training.recipe.recipes import Recipe, load_recipe
from latentalign.training.run.folders import prepare_again
from latentalign.training.train import train
from latentalign.training.trained_run import Run, load
from latentalign.translation.generated.corpus import write_corpus

RECIPE = "multi30k-de-en"
GENERATED = {"train": 20_000, "valid": 500, "test": 500}


class Setting:
    """One call of the benchmark."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.work: Path = options.work
        self.work.mkdir(parents=True, exist_ok=True)
        self.threads: int = options.threads
        self.stack = ExitStack()

    # --- data and recipes ---

    @cached_property
    def has_multi30k(self) -> bool:
        return (self.options.data / "train.de.gz").is_file()

    @cached_property
    def data_folder(self) -> Path:
        if self.has_multi30k:
            return Path(self.options.data).resolve()
        folder = self.work / "generated"
        sizes = {name: min(size, self.options.pairs or size) for name, size in GENERATED.items()}
        write_corpus(folder, sizes=sizes)
        return folder.resolve()

    def describe_data(self) -> str:
        if self.has_multi30k:
            return f"Multi30k ({self.options.data})"
        return f"generated text, since {self.options.data} has no Multi30k (latentalign download multi30k)"

    def recipe(self, kind: str = "", *changes: str) -> Recipe:
        """The packaged recipe (or one of its kinds) on the data at hand, with the changes of the command line."""
        settings = [f"data.folder={self.data_folder}", f"training.threads={self.threads}"]
        if not self.has_multi30k:
            for split in ("train", "valid"):
                settings.append(f"data.{split}={{source: {split}.de, target: {split}.en}}")
        return load_recipe(f"{RECIPE}{kind}", [*settings, *self.options.set, *changes])

    def objective(self, kind: str, phase: int = -1) -> Any:
        """What the recipe of that kind trains by in one of its phases, pruning included."""
        return self.recipe(kind).schedule[phase].objective

    @cached_property
    def test_sentences(self) -> list[str]:
        name = "test_2016_flickr.de.gz" if self.has_multi30k else "test.de"
        return list(read_lines(self.data_folder / name))[: self.options.sentences]

    # --- states of training ---

    @cached_property
    def run_folder(self) -> Path:
        """The run that was given, or one trained by soft attention as the recipes begin."""
        if self.options.run is not None:
            return Path(self.options.run)
        folder = self.work / "run"
        recipe = self.recipe("-variational")
        epochs = self.options.epochs or recipe.schedule[0].epochs
        recipe = self.recipe("-variational", f"training.epochs={epochs}")
        train(recipe, folder, resume=(folder / "config.yaml").is_file())
        return folder

    @cached_property
    def run(self) -> Run:
        return load(self.run_folder)

    @cached_property
    def finished(self) -> Run:
        """A run that has been trained to its end, to translate with."""
        return load(self.options.finished)

    @cached_property
    def prepared(self) -> Any:
        return self.stack.enter_context(prepare_again(self.run.config, self.run_folder, lambda text: None))

    def batches(self, count: int) -> list[Any]:
        """Training batches of all lengths as an epoch has them, the same for everybody."""
        return spread_batches(self.prepared.train, count)

    def shuffled(self, count: int, *, epoch: int) -> list[Any]:
        """Training batches in the order of an epoch; further epochs where one is too short."""
        plan: list[list[int]] = []
        while len(plan) < count:
            plan += self.prepared.train.plan(epoch, self.run.config.seed)
            epoch += 1
        return [self.prepared.train.collate(indices) for indices in plan[:count]]

    def model(self, state: str) -> Any:
        """A model of its own in a state: `soft`, `wake` (soft, then wake), `enumerate` and `sample` (after wake)."""
        torch.manual_seed(0)
        model = self.run.task.build_model(self.run.config.model, self.run.assets, needs_posterior=True)
        if state == "soft":
            model.load_state_dict(self.run.model.state_dict(), strict=False)
        else:
            model.load_state_dict(load_file(self.state_file(state)))
        return model

    def state_file(self, state: str) -> Path:
        """Weights of a state; trained the first time it is asked for."""
        name = f"{state}-{self.options.sharpen}.safetensors"
        path = self.work / "states" / name
        if path.is_file() and self.options.run is None:
            return path
        if path.is_file() and path.stat().st_mtime > (self.run_folder / "model.safetensors").stat().st_mtime:
            return path
        path.parent.mkdir(exist_ok=True)
        if state == "soft":
            model = self.model("soft")
        elif state == "wake":
            model = self._go_on("soft", self.objective("-variational", 1), self.options.sharpen)
        elif state == "enumerate":
            model = self._go_on("wake", self.objective("-variational"), self.options.sharpen // 3)
        else:
            model = self._go_on("wake", self.objective("-variational-sample"), self.options.sharpen // 3)
        save_file(model.state_dict(), path)
        return path

    def _go_on(self, state: str, objective: Any, updates: int) -> Any:
        note(f"training {updates} batches by {objective} from the state {state}")
        training = self.run.config.training
        loop = BareLoop(
            self.model(state),
            build_objective(objective),
            learning_rate=training.learning_rate,
            clip=training.gradient_clip,
        )
        for batch in self.shuffled(updates, epoch=100):
            loop.step(batch)
        return loop.model

    def loop(self, state: str, objective: Any) -> BareLoop:
        """Steps from a state that leave it where it is: the rate is 0, the work the same."""
        return BareLoop(self.model(state), build_objective(objective), learning_rate=0.0, clip=5.0)


def note(text: str) -> None:
    """A line of progress."""
    import sys

    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Stopwatch:
    """Work done and the time it took, by the wall and by the processor."""

    def __init__(self) -> None:
        self.work, self.seconds, self.processor = 0.0, 0.0, 0.0

    def add(self, action: Callable[[], float]) -> None:
        """Time an action that says how much work it did."""
        wall, cpu = time.perf_counter(), time.process_time()
        work = action()
        self.seconds += time.perf_counter() - wall
        self.processor += time.process_time() - cpu
        self.work += work

    @property
    def rate(self) -> float:
        return self.work / self.seconds


def take_turns(contenders: Mapping[str, Callable[[], Stopwatch]], rounds: int) -> dict[str, list[Stopwatch]]:
    """A B A B …: whatever else the machine does falls on all of them."""
    found: dict[str, list[Stopwatch]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name, contender in contenders.items():
            watch = contender()
            found[name].append(watch)
            note(f"round {number + 1}/{rounds}, {name}: {watch.rate:,.1f}/s")
    return found


def summary(watches: list[Stopwatch], reference: list[Stopwatch]) -> dict[str, Any]:
    """Medians over the rounds, and the median ratio to the reference in the same round."""
    ratios = [mine.rate / theirs.rate for mine, theirs in zip(watches, reference, strict=True)]
    return {
        "per_second": statistics.median(watch.rate for watch in watches),
        "per_processor_second": statistics.median(
            watch.work / watch.processor for watch in watches if watch.processor
        )
        if any(watch.processor for watch in watches)
        else None,
        "ratio": statistics.median(ratios),
        "ratios": [round(ratio, 4) for ratio in ratios],
    }


def load_averages() -> list[float]:
    """How busy the machine is: processes that want to run, over 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]
