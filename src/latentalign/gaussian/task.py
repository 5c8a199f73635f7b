"""Digits with a Gaussian latent as a task of the trainer."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from latentalign.errors import UserError
from latentalign.files import read_json, write_atomic
from latentalign.gaussian.digits import Digits, load_digits
from latentalign.gaussian.model import DigitModel
from latentalign.task import EvaluationOptions, Log, Task

FILE = "digits.json"


class GaussianDataConfig(BaseModel):
    """Which digits are learnt and which are held out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    held_out: float = Field(default=0.2, gt=0, lt=1)
    batch_size: int = Field(default=100, ge=1)
    threshold: int = Field(default=8, ge=1, le=16)  # grey values from here on are ink
    data_seed: int = 1


class GaussianModelConfig(BaseModel):
    """Sizes of encoder and decoder."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    latent: int = Field(default=8, ge=1)
    hidden: int = Field(default=200, ge=1)
    importance_samples: int = Field(default=100, ge=1)  # for the marginal likelihood at validation


@dataclass(frozen=True)
class GaussianAssets:
    """How the digits were split."""

    held_out: float
    batch_size: int
    threshold: int
    data_seed: int

    def load(self) -> tuple[Digits, Digits]:
        return load_digits(
            held_out=self.held_out,
            batch_size=self.batch_size,
            threshold=self.threshold,
            seed=self.data_seed,
        )


@dataclass(frozen=True)
class PreparedDigits:
    assets: GaussianAssets
    train: Digits
    valid: Digits


class DigitsToEvaluate(EvaluationOptions):
    """The digits themselves, those that were held out unless said otherwise."""

    split: Literal["train", "valid"] = "valid"


class GaussianTask(Task):
    """A variational auto-encoder of handwritten digits."""

    name = "gaussian"
    DataConfig = GaussianDataConfig
    ModelConfig = GaussianModelConfig
    EvaluationConfig = DigitsToEvaluate

    def prepare(
        self,
        data: GaussianDataConfig,
        model: GaussianModelConfig,
        *,
        folder: Path,
        seed: int,
        log: Log,
    ) -> PreparedDigits:
        """Split the digits; nothing is downloaded."""
        assets = GaussianAssets(**data.model_dump())
        write_atomic(folder / FILE, json.dumps(asdict(assets)) + "\n")
        train, valid = assets.load()
        log(
            f"digits of scikit-learn: {len(train)} to learn, {len(valid)} held out, ink from {data.threshold}"
        )
        return PreparedDigits(assets, train, valid)

    def load_assets(self, folder: Path) -> GaussianAssets:
        try:
            return GaussianAssets(**read_json(folder / FILE, "the split of the digits; copy the run again"))
        except (ValueError, TypeError):
            raise UserError(
                f"{folder / FILE}: damaged; expected the split of the digits, copy the run again"
            ) from None

    def build_model(
        self, model: GaussianModelConfig, assets: GaussianAssets, *, needs_posterior: bool
    ) -> DigitModel:
        if not needs_posterior:
            raise UserError(
                "objective: a Gaussian latent is learnt with an encoder; expected "
                "{name: variational, estimator: pathwise}"
            )
        return DigitModel(model.latent, model.hidden, samples=model.importance_samples)

    def dataset(self, assets: GaussianAssets, chosen: DigitsToEvaluate) -> Digits:
        """One part of the digits."""
        return assets.load()[0 if chosen.split == "train" else 1]


TASK: Task = GaussianTask()
