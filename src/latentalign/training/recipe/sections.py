"""What a recipe may say, apart from the task's own sections. Defaults live here and nowhere else."""

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

Beta = Annotated[float, Field(ge=0.0, lt=1.0)]
Minutes = Annotated[float, Field(gt=0.0, le=100_000.0)]
Choice = str | dict[str, Any]  # a name of the registry, or a mapping with `name` and its settings


class Section(BaseModel):
    """A part of a recipe: unknown keys are refused, nothing is coerced, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class HalvingConfig(Section):
    """Lower the learning rate when validation stops improving."""

    factor: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5  # 1 keeps the rate as it is
    patience: NonNegativeInt = 0  # validations without improvement that are forgiven before it is lowered
    minimum: NonNegativeFloat = 0.0  # never below this rate


class PlateauDecay(Section):
    """The rate falls when validation stops improving, as `training.halving` says."""

    name: Literal["plateau"] = "plateau"


class InverseSqrtDecay(Section):
    """From the end of the warm-up the rate falls with the square root of the step."""

    name: Literal["inverse_sqrt"]


class CosineDecay(Section):
    """The rate falls along half a cosine, down to a share of itself."""

    name: Literal["cosine"]
    floor: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    epochs: PositiveFloat | None = None  # how long it falls; null = the whole of training


Decay = Annotated[PlateauDecay | InverseSqrtDecay | CosineDecay, Field(discriminator="name")]


class EarlyStoppingConfig(Section):
    """Stop when validation has not improved for a while; counts in the last phase of the schedule only."""

    patience: PositiveInt | None = None  # validations without improvement; null trains to the end


class CheckpointConfig(Section):
    """When to write a checkpoint, besides validations with a new best, interruptions and the end."""

    every_steps: PositiveInt | None = None
    every_minutes: PositiveFloat | None = 10.0
    keep: PositiveInt = 2  # the newest ones; the best one is kept besides


class TrainingConfig(Section):
    """`training:` of a recipe."""

    epochs: PositiveFloat | None = None  # when to stop; null = the schedule's length, or 10 without one
    learning_rate: PositiveFloat = 1e-3
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    eps: PositiveFloat = 1e-8
    gradient_clip: NonNegativeFloat = (
        5.0  # largest norm of the gradient of θ, and of that of φ; 0 turns it off
    )
    warmup_steps: NonNegativeInt = 0  # the rate grows evenly over the first updates
    decay: Decay = PlateauDecay()  # how it falls: plateau, inverse_sqrt, cosine, or a mapping with `name`
    halving: HalvingConfig = HalvingConfig()  # of plateau
    weight_decay: NonNegativeFloat = 0.0  # of Adam, apart from the gradient; not of biases and other vectors
    early_stopping: EarlyStoppingConfig = EarlyStoppingConfig()
    # Which weights a run ends with: of the best validation, or of the last one. With a rate that falls to 0, the
    # last ones may predict best though the NLL of an overconfident model has risen again.
    keep_weights: Literal["best", "last"] = "best"
    validate_every: PositiveFloat | None = 1.0  # epochs, may be a fraction
    validate_every_steps: PositiveInt | None = None  # instead of epochs
    inference: str | None = (
        None  # at validation: exact, kmax:K, sample:N, soft; null = what fits the last objective
    )
    checkpoint: CheckpointConfig = CheckpointConfig()
    log_every: PositiveInt = 20  # steps between two lines of the loggers
    accumulate: PositiveInt = 1  # batches an update
    precision: Literal[32, "bf16"] = 32
    accelerator: Literal["auto", "cpu", "gpu"] = "auto"
    threads: PositiveInt | None = None  # of torch, for each process; null leaves torch's choice
    deterministic: bool = False  # refuse operations that may differ between two runs
    devices: PositiveInt = 1  # processes on each machine, started here unless torchrun started them
    nodes: PositiveInt = 1
    timeout_minutes: Minutes = 10.0  # several processes: how long one may wait for the others

    @field_validator("decay", mode="before")
    @classmethod
    def _a_name_alone(cls, decay: Any) -> Any:
        return {"name": decay} if isinstance(decay, str) else decay

    def with_fixed_decay(self, total: float) -> "TrainingConfig":
        """The same rates, whatever `epochs` becomes: how long the decay takes is written out."""
        if not isinstance(self.decay, CosineDecay) or self.decay.epochs is not None:
            return self
        return self.model_copy(update={"decay": self.decay.model_copy(update={"epochs": total})})

    @model_validator(mode="after")
    def _decay_has_a_beginning(self) -> "TrainingConfig":
        if isinstance(self.decay, InverseSqrtDecay) and self.warmup_steps == 0:
            raise ValueError(
                "decay inverse_sqrt falls from the end of the warm-up: expected warmup_steps above 0; try 400"
            )
        return self


class PhaseConfig(Section):
    """A stretch of training with one objective."""

    objective: Choice
    epochs: PositiveFloat | None = None  # may be a fraction; only the last phase may leave it out
    train: Literal["theta", "phi", "both"] = "both"


class RecipeConfig(Section):
    """A whole recipe. `data` and `model` belong to the task and are checked against its own sections."""

    task: str
    seed: NonNegativeInt = 1
    data: dict[str, Any] = {}
    model: dict[str, Any] = {}
    objective: Choice = "soft"
    schedule: list[PhaseConfig] = []
    training: TrainingConfig = TrainingConfig()
