# mypy: disable-error-code="type-abstract"
"""Several trained runs that translate together, by the mean of their predictive distributions."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from latentalign.errors import UserError
from latentalign.task import CanTranslate, Dataset
from latentalign.training.loaded import Loaded
from latentalign.training.loop.evaluation import BatchProgress, averages, weighted_total
from latentalign.training.loop.randomness import derive_seed
from latentalign.training.trained_run import Run
from latentalign.training.trained_run import load as load_run

if TYPE_CHECKING:
    from latentalign.translation.translate import Translator


@dataclass(frozen=True)
class Ensemble(Loaded):
    """Runs of one vocabulary. Every run predicts as it was trained to, unless an `inference` is named for all.

    Example:
        together = la.load(["runs/soft", "runs/variational"])
        print(*together.translate(["ein hund bellt ."]))
    """

    has_own_links: ClassVar[bool] = False

    runs: tuple[Run, ...]

    def __post_init__(self) -> None:
        if not self.runs:
            raise UserError("ensemble: expected at least one run, received none")
        first = self.runs[0]
        for run in self.runs:
            run.able(CanTranslate)
        for run in self.runs[1:]:
            for side in ("target", "source"):
                mine, other = run.assets.sides[side], first.assets.sides[side]
                if mine.settings != other.settings or mine.pieces != other.pieces:
                    raise UserError(
                        f"{run.folder}: another {side} vocabulary ({len(mine)} pieces) than {first.folder} has "
                        f"({len(other)}); expected runs trained on the same data by the same tokenizer"
                    )

    @property
    def device(self) -> torch.device:
        return self.runs[0].device

    def __str__(self) -> str:
        return f"{', '.join(str(run.folder) for run in self.runs)}: an ensemble"

    def able(self, ability: type[Any]) -> Any:
        """The task of all runs, if it has this ability."""
        return self.runs[0].able(ability)

    def translator(
        self, *, inference: str | None = None, batch_size: int = 64, seed: int = 0, **search: Any
    ) -> "Translator":
        """What translates with all runs together; options as for a run."""
        first, *others = self.runs
        task = first.able(CanTranslate)
        found: Translator = task.translator(
            first.model,
            first.assets,
            predictor=first.predictor(inference),
            others=[(run.model, run.predictor(inference)) for run in others],
            batch_size=batch_size,
            seed=seed,
            **search,
        )
        return found

    def _measure(
        self, inference: str | None, seed: int, progress: BatchProgress, data: dict[str, Any]
    ) -> tuple[dict[str, Any], str | None]:
        """NLL of the mean distribution, and the members' mean prior entropy."""
        dataset = self.runs[0].dataset(**data)
        started = time.perf_counter()
        sums = self._sums(dataset, inference, seed, progress)
        named = ", ".join(dict.fromkeys(inference or run.natural_inference for run in self.runs))
        results = {
            "task": self.runs[0].task.name,
            "members": len(self.runs),
            **averages(sums, {}, named, time.perf_counter() - started),
            **self.runs[0].task.remarks(dataset),
        }
        return results, inference

    @torch.no_grad()
    def _sums(
        self, dataset: Dataset, inference: str | None, seed: int, progress: BatchProgress
    ) -> dict[str, float]:
        """Sums over the outputs of the dataset, as `averages` takes them."""
        from latentalign.translation.ensemble import log_mean

        predictors = [run.predictor(inference) for run in self.runs]
        generator = torch.Generator(self.device)
        sums = dict.fromkeys(("outputs", "nll", "prior_entropy"), 0.0)
        plan = dataset.plan(-1, seed)
        for number, indices in enumerate(plan):
            progress(number, len(plan))
            generator.manual_seed(derive_seed(seed, "evaluate", number))
            batch = dataset.collate(indices).to(self.device)
            problems = [run.model.problem(batch) for run in self.runs]
            weights = problems[0].weights.double()  # [B,T]
            found = [
                predictor.log_likelihood(problem.prior, problem.likelihood, generator=generator)
                for predictor, problem in zip(predictors, problems, strict=True)
            ]
            entropies = [weighted_total(problem.prior.alignment_entropy(), weights) for problem in problems]
            sums["nll"] -= weighted_total(log_mean(found), weights)
            sums["prior_entropy"] += sum(entropies) / len(problems)
            sums["outputs"] += float(weights.sum())
        return {**sums, "examples": len(dataset)}


def load_together(folders: Sequence[str | Path], *, device: str | torch.device = "auto") -> Run | Ensemble:
    """A run from one folder; an ensemble from several."""
    if len(folders) == 1:
        return load_run(folders[0], device=device)
    return Ensemble(tuple(load_run(folder, device=device) for folder in folders))
