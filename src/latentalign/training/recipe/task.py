"""What a task gives the trainer. Tasks have these shapes without importing this module.

The trainer never knows which task it trains: it asks for a plan of batches, hands each batch to the model and gets
an alignment problem back (a prior, a likelihood and, where asked, a posterior).
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from pydantic import BaseModel
from torch import nn


class Batch(Protocol):
    """Anything that can move to a device."""

    def to(self, device: torch.device) -> "Batch": ...


class Dataset(Protocol):
    """Examples of a task, batched by a plan that depends on nothing but the epoch and the seed."""

    def __len__(self) -> int: ...

    def plan(self, epoch: int, seed: int) -> list[list[int]]:
        """Batches of example indices; every example once. `epoch < 0` is a fixed order for evaluation."""
        ...

    def collate(self, indices: list[int]) -> Any:
        """The batch of these examples. It may draw from torch's global generator: the trainer seeds it from the
        run's seed, the epoch and the batch, so that a resumed run draws the same."""
        ...

    def describe(self, indices: list[int]) -> str:
        """Where the examples come from, for error messages: ``lines 3, 17, 90 of train.de``."""
        ...

    def fingerprint(self) -> str:
        """A checksum of the examples: the same for the same data, so that a resumed run notices other data."""
        ...


class TaskModel(Protocol):
    """An nn.Module that turns a batch into an alignment problem."""

    def problem(self, batch: Any, *, with_posterior: bool = False) -> Any: ...

    def theta(self) -> list[nn.Parameter]:
        """Parameters of the generative model."""
        ...

    def phi(self) -> list[nn.Parameter]:
        """Parameters of the inference network; disjoint from theta, empty without one."""
        ...

    def measures(
        self, batch: Any, problem: Any, predictor: Any, *, generator: torch.Generator | None = None
    ) -> dict[str, tuple[float, float]]:
        """Further (sum, count) pairs by name for `evaluate`, e.g. accuracy; {} if there are none."""
        ...


class Prepared(Protocol):
    """What `prepare` hands back."""

    assets: Any
    train: Dataset
    valid: Dataset


@runtime_checkable
class Task(Protocol):
    """A task: its part of the recipe, its data and its model.

    `prepare` writes what is needed at test time into the folder it is given. It is called once by the process that
    starts a run. A resumed run and further processes of the same run call it with a scratch copy of the run folder,
    where it may find and reuse what it wrote before; what it writes there must come out the same.
    """

    name: str
    DataConfig: type[BaseModel]
    ModelConfig: type[BaseModel]

    def prepare(
        self, data: Any, model: Any, *, folder: Path, seed: int, log: Callable[[str], None]
    ) -> Prepared: ...

    def load_assets(self, folder: Path) -> Any: ...

    def build_model(self, model: Any, assets: Any, *, needs_posterior: bool) -> Any:
        """A fresh model; random numbers come from torch's global generator, which the trainer seeds."""
        ...

    def dataset(self, assets: Any, **arguments: Any) -> Dataset:
        """Data for `evaluate`; which arguments there are is the task's business (source=, target= or data=, split=)."""
        ...


Indices = Sequence[int]
