"""What a task is to the rest of the package.

A task is a class derived from `Task` and from one class for each further thing it can do (`CanTranslate`, `CanAlign`,
`CanAnswer`, `CanAnswerFromImages`, `CanConvert`). Its module ends with `TASK: Task = TheTask()`: there the type
checker sees that nothing is missing. The code that trains or uses a run never knows which task it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import nn

from latentalign.errors import UserError

Log = Callable[[str], None]


class Batch(Protocol):
    """Anything that can move to a device."""

    def to(self, device: torch.device) -> "Batch": ...


class Dataset(Protocol):
    """Examples of a task, batched by a plan that depends on nothing but the epoch and the seed."""

    def __len__(self) -> int: ...

    def plan(self, epoch: int, seed: int) -> list[list[int]]:
        """Batches of example indices; every example once. `epoch < 0` is a fixed order for evaluation."""
        ...

    def collate(self, indices: list[int]) -> Batch:
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

    training: bool

    def problem(self, batch: Any, *, with_posterior: bool = False) -> Any: ...

    def theta(self) -> list[nn.Parameter]:
        """Parameters of the generative model."""
        ...

    def phi(self) -> list[nn.Parameter]:
        """Parameters of the inference network; disjoint from theta, empty without one."""
        ...

    def example_prior(self) -> Any:
        """A prior of the smallest size, to see what kind it is."""
        ...

    def measures(
        self, batch: Any, problem: Any, predictor: Any, *, generator: torch.Generator | None = None
    ) -> dict[str, tuple[float, float]]:
        """Further (sum, count) pairs by name for `evaluate`, e.g. accuracy; {} if there are none."""
        ...

    def eval(self) -> Any: ...

    def train(self, mode: bool = True) -> Any: ...


class Prepared(Protocol):
    """What `prepare` hands back."""

    @property
    def assets(self) -> Any: ...

    @property
    def train(self) -> Dataset: ...

    @property
    def valid(self) -> Dataset: ...


class EvaluationOptions(BaseModel):
    """Which data `evaluate` measures on. A task derives its own options from this; without any, there are none."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Task(ABC):
    """A task: its part of the recipe, its data and its model.

    `prepare` writes what is needed at test time into the folder it is given. It is called once by the process that
    starts a run. A resumed run and further processes of the same run call it with a scratch copy of the run folder,
    where it may find and reuse what it wrote before; what it writes there must come out the same.
    """

    name: ClassVar[str]
    DataConfig: ClassVar[type[BaseModel]]
    ModelConfig: ClassVar[type[BaseModel]]
    EvaluationConfig: ClassVar[type[EvaluationOptions]]

    @abstractmethod
    def prepare(self, data: Any, model: Any, *, folder: Path, seed: int, log: Log) -> Prepared:
        """Read the data of a recipe and write what a run needs of them into the folder."""

    @abstractmethod
    def load_assets(self, folder: Path) -> Any:
        """What `prepare` wrote, from the folder of a run."""

    @abstractmethod
    def build_model(self, model: Any, assets: Any, *, needs_posterior: bool) -> TaskModel:
        """A fresh model; random numbers come from torch's global generator, which the trainer seeds."""

    @abstractmethod
    def dataset(self, assets: Any, chosen: Any) -> Dataset:
        """The data that `evaluate` measures on; `chosen` is an object of the task's `EvaluationConfig`."""

    def remarks(self, dataset: Any) -> dict[str, int]:
        """What `evaluate` says of such data besides the measures: what the run has never seen, or what was left out."""
        return {}

    def choose_data(self, **options: Any) -> EvaluationOptions:
        """The options of `evaluate` as this task's `EvaluationConfig`; a mistake is reported in one line."""
        known = self.EvaluationConfig.model_fields
        needed = [name for name, field in known.items() if field.is_required()]
        if unknown := [name for name in options if name not in known]:
            takes = _spell(needed or known)
            raise UserError(f"--{unknown[0]}: does not go with the task {self.name!r}, which takes {takes}")
        if missing := [name for name in needed if name not in options]:
            raise UserError(f"evaluate: the task {self.name!r} needs {_spell(missing)}")
        try:
            return self.EvaluationConfig(**options)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            expected = first["msg"].removeprefix("Input should be ")
            place = _spell(map(str, first["loc"]))
            raise UserError(f"{place}: expected {expected}, received {first['input']!r}") from None


def _spell(names: Iterable[str]) -> str:
    return ", ".join(f"--{name.replace('_', '-')}" for name in names) or "no options"


class Ability(ABC):
    """Something that some tasks can do; `verb` completes 'a run of task X does not …'."""

    verb: ClassVar[str]


class CanTranslate(Ability):
    """Sentences in, sentences out."""

    verb = "translate"

    @abstractmethod
    def translator(
        self, model: Any, assets: Any, *, predictor: Any, batch_size: int, seed: int, **search: Any
    ) -> Any:
        """An object whose `translate(sentences, alignments=)` gives the n best translations of every sentence."""

    @abstractmethod
    def pairs(self, chosen: Any) -> Iterable[tuple[str, str]]:
        """Sources and references of the data that `evaluate` measures on."""


class CanAlign(Ability):
    """Word links of sentence pairs, and how likely a pair is."""

    verb = "align"

    @abstractmethod
    def aligner(self, model: Any, assets: Any) -> Any:
        """An object whose `align(pairs)` gives matrices of link probabilities."""


class CanAnswer(Ability):
    """Questions about something: a picture, a story."""

    verb = "answer questions"

    @abstractmethod
    def answer(
        self,
        model: Any,
        assets: Any,
        request: Mapping[str, Any],
        *,
        predictor: Any,
        top: int = 5,
        generator: torch.Generator | None = None,
    ) -> dict[str, Any]:
        """`{"question", "answers": [{"answer", "probability"}], "evidence": [{"text", "prior", "posterior"?}]}`."""


class CanAnswerFromImages(CanAnswer):
    """Questions about pictures: a request has `features`, a folder of region features, and `image`, a number."""

    verb = "answer questions about pictures"


class CanConvert(Ability):
    """Data that can be converted once, to be read faster."""

    verb = "convert data"

    @abstractmethod
    def prepared_marker(self, data: Any) -> str:
        """The file by which a folder that was written here before is recognised."""

    @abstractmethod
    def prepare_files(self, data: Any, model: Any, *, to: Path, seed: int, log: Log) -> None:
        """Write the data of a recipe into a folder of memory-mapped files."""
