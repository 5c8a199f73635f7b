"""A toy task for tests of the trainer: copy the label of the memory position that the query points at.

`python -m tests.training.copying ARGUMENTS` is the command line with this task registered.
"""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, PositiveInt
from torch import Tensor, nn

from latentalign.alignment.latents.categorical import Categorical
from latentalign.alignment.learning.problem import AlignmentProblem
from latentalign.alignment.likelihoods.likelihood import ContextLikelihood
from latentalign.alignment.registry import build_distribution
from latentalign.errors import UserError
from latentalign.files import digest
from latentalign.task import EvaluationOptions, Task
from latentalign.training.recipe.tasks import TASKS

KEYS, LABELS = 6, 5


class DataConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    train: PositiveInt = 64
    valid: PositiveInt = 16
    batch: PositiveInt = 8
    missing: bool = False  # to see what happens when data are not there
    poison: int = -1  # an example that is NaN
    slow: float = 0.0  # seconds a batch takes to collate


class ModelConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    size: PositiveInt = 12
    dropout: float = 0.2
    prior: str = "categorical"


@dataclass
class CopyBatch:
    memory: Tensor  # [B,S,D]
    mask: Tensor  # [B,S]
    query: Tensor  # [B,T,D]
    target: Tensor  # [B,T]
    weights: Tensor  # [B,T]

    def to(self, device: torch.device) -> "CopyBatch":
        return CopyBatch(**{name: value.to(device) for name, value in vars(self).items()})


class CopyData:
    """Examples of different lengths: S positions with a key and a label each, T queries for keys."""

    def __init__(self, count: int, seed: int, batch: int, poison: int = -1, slow: float = 0.0) -> None:
        self.batch = batch
        self.slow = slow
        self.examples = []
        generator = torch.Generator().manual_seed(seed)
        for number in range(count):
            positions = int(torch.randint(2, KEYS + 1, (1,), generator=generator))
            steps = int(torch.randint(1, 4, (1,), generator=generator))
            keys = torch.randperm(KEYS, generator=generator)[:positions]
            labels = torch.randint(LABELS, (positions,), generator=generator)
            chosen = torch.randint(positions, (steps,), generator=generator)
            memory = torch.cat([torch.eye(KEYS)[keys], torch.eye(LABELS)[labels]], dim=-1)
            if number == poison:
                memory = memory * float("nan")
            self.examples.append((memory, torch.eye(KEYS)[keys[chosen]], labels[chosen]))

    def __len__(self) -> int:
        return len(self.examples)

    def plan(self, epoch: int, seed: int) -> list[list[int]]:
        order = list(range(len(self)))
        if epoch >= 0:
            generator = torch.Generator().manual_seed(1000 * seed + epoch)
            order = torch.randperm(len(self), generator=generator).tolist()
        return [order[start : start + self.batch] for start in range(0, len(order), self.batch)]

    def collate(self, indices: list[int]) -> CopyBatch:
        time.sleep(self.slow)
        rows = [self.examples[index] for index in indices]
        pad = nn.utils.rnn.pad_sequence
        memory = pad([row[0] for row in rows], batch_first=True)
        mask = pad([torch.ones(len(row[0]), dtype=torch.bool) for row in rows], batch_first=True)
        query = pad([row[1] for row in rows], batch_first=True)
        target = pad([row[2] for row in rows], batch_first=True)
        weights = pad([torch.ones(len(row[2]), dtype=torch.bool) for row in rows], batch_first=True)
        return CopyBatch(memory, mask, query, target, weights)

    def describe(self, indices: list[int]) -> str:
        return f"examples {', '.join(str(index) for index in sorted(indices))}"

    def fingerprint(self) -> str:
        return digest(*(part.contiguous().numpy() for example in self.examples for part in example))


class CopyModel(nn.Module):
    def __init__(self, config: ModelConfig, needs_posterior: bool) -> None:
        super().__init__()
        size = config.size
        self.distribution = build_distribution(config.prior)
        self.memory = nn.Linear(KEYS + LABELS, size)
        self.query = nn.Linear(KEYS, size)
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(size, LABELS)
        self.inference = nn.Bilinear(KEYS, LABELS, size) if needs_posterior else None

    def example_prior(self) -> Any:
        return self.distribution(torch.zeros(1, 1, 1), None)

    def problem(self, batch: CopyBatch, *, with_posterior: bool = False) -> AlignmentProblem:
        memory = self.dropout(self.memory(batch.memory).tanh())  # [B,S,D]
        query = self.query(batch.query)  # [B,T,D]
        prior = self.distribution(query @ memory.transpose(1, 2), batch.mask)
        likelihood = ContextLikelihood(lambda x, q: self.head(torch.tanh(x)), memory, query, batch.target)
        posterior = None
        if with_posterior and self.inference is not None:
            label = torch.eye(LABELS)[batch.target]
            scores = self.inference(batch.query, label) @ memory.detach().transpose(1, 2)
            posterior = self.distribution(scores, batch.mask)
        return AlignmentProblem(prior, likelihood, batch.weights, posterior)

    def theta(self) -> list[nn.Parameter]:
        return [*self.memory.parameters(), *self.query.parameters(), *self.head.parameters()]

    def phi(self) -> list[nn.Parameter]:
        return list(self.inference.parameters()) if self.inference is not None else []

    def measures(
        self, batch: CopyBatch, problem: AlignmentProblem, predictor: Any, *, generator: Any = None
    ) -> dict[str, tuple[float, float]]:
        if not isinstance(problem.prior, Categorical):
            return {}
        best = predictor.log_probs(problem.prior, problem.likelihood, generator=generator).argmax(-1)
        right = (best == batch.target) & batch.weights
        return {"accuracy": (float(right.sum()), float(batch.weights.sum()))}


@dataclass
class Prepared:
    assets: dict[str, str]
    train: CopyData
    valid: CopyData


class NothingToChoose(EvaluationOptions):
    data: Path | None = None
    split: str = "test"


class CopyTask(Task):
    name = "copy"
    DataConfig = DataConfig
    ModelConfig = ModelConfig
    EvaluationConfig = NothingToChoose

    def prepare(
        self, data: DataConfig, model: ModelConfig, *, folder: Path, seed: int, log: Callable[[str], None]
    ) -> Prepared:
        if data.missing:
            raise UserError("train.txt: no such file")
        (folder / "labels.txt").write_text(f"{LABELS}\n")
        log(f"read {data.train} examples")
        return Prepared(
            self.load_assets(folder),
            CopyData(data.train, 1, data.batch, data.poison, data.slow),
            CopyData(data.valid, 2, data.batch),
        )

    def load_assets(self, folder: Path) -> dict[str, str]:
        return {"labels": (folder / "labels.txt").read_text()}

    def build_model(self, model: ModelConfig, assets: Any, *, needs_posterior: bool) -> CopyModel:
        return CopyModel(model, needs_posterior)

    def dataset(self, assets: Any, chosen: NothingToChoose) -> CopyData:
        return CopyData(12, 3, 5)


TASK: Task = CopyTask()
TASKS["copy"] = "tests.training.copying"


def watch_writes(report: str, folder: str) -> None:
    """Note every file that this process opens for writing, makes, moves or removes below the folder."""
    rank = os.environ.get("LOCAL_RANK", "0")
    descriptor = os.open(f"{report}.{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
        if event == "open":
            flags = arguments[2] or 0
            writes = bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        if writes and str(arguments[0]).startswith(folder):
            os.write(descriptor, f"{event} {arguments[0]}\n".encode())

    sys.addaudithook(hook)


if __name__ == "__main__":
    from latentalign.cli import main

    if "COPY_WATCH" in os.environ:
        watch_writes(*os.environ["COPY_WATCH"].split(":"))
    main()
