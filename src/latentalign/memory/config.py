"""Recipe sections `data:` and `model:` of memory networks. Defaults are here and nowhere else."""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from latentalign.memory.worlds import WorldsConfig

MOST_HOPS = 5


class MemoryDataConfig(BaseModel):
    """Stories to learn from: files in the bAbI format, or generated worlds where none are given."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    stories: tuple[Path, ...] = ()  # files, folders or patterns; none = generated worlds
    valid: tuple[Path, ...] = ()  # files for validation; none = hold stories out
    held_out: float = Field(default=0.1, gt=0, lt=1)  # share of the stories, where `valid` is not given
    memory: int = Field(default=50, ge=1)  # slots; of a longer story the newest facts are kept
    batch_size: int = Field(default=32, ge=1)
    bucket: bool = True  # batches of stories of like length: less padding
    worlds: WorldsConfig = WorldsConfig()
    data_seed: int = 1  # which worlds are told and which stories are held out; the same for every run


class MemoryModelConfig(BaseModel):
    """A memory network and how its attention is treated."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["end-to-end", "supervised", "dynamic"] = "end-to-end"
    size: int = Field(default=50, ge=2)
    hops: int = Field(default=3, ge=1, le=MOST_HOPS)  # episodes, for dynamic memory
    tying: Literal["adjacent", "layer-wise"] = "adjacent"  # end-to-end only
    position_encoding: bool = True  # words of a sentence are weighted by their place; else a bag of words
    temporal_encoding: bool = True  # a learnt vector for the age of a fact
    random_noise: float = Field(default=0.1, ge=0, lt=1)  # empty slots put between facts while training
    linear_start: float = Field(default=0.0, ge=0)  # first epochs, without the softmax in the attention
    init_scale: float = Field(default=0.1, gt=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)

    distribution: str | dict[str, Any] = "categorical"  # of the latent attention
    latent: Literal["last", "path"] = "last"  # the last hop, or all hops together (exact over their product)
    most_paths: int = Field(default=4096, ge=1)  # a longer product of hops is refused
    posterior: Literal["network", "facts"] = "network"  # q: a network that sees the answer, or the file
    inference_size: int = Field(default=64, ge=2)
    inference_from_prior: bool = False  # q ∝ p · exp(score), as the exact posterior is p · f

    facts: Literal["none", "likelihood", "margin"] = "none"  # how the file's supporting facts supervise hops
    facts_weight: float = Field(default=1.0, ge=0)
    margin: float = Field(default=0.1, gt=0)

    @field_validator("distribution")
    @classmethod
    def _known(cls, distribution: str | dict[str, Any]) -> str | dict[str, Any]:
        from latentalign.alignment.registry import (
            build_distribution,  # torch takes seconds, a mistyped key should not
        )

        build_distribution(distribution)
        return distribution

    @model_validator(mode="after")
    def _agree(self) -> "MemoryModelConfig":
        if self.latent == "path" and self.kind != "end-to-end":
            raise ValueError(
                f"expected kind: end-to-end with latent: path, received kind: {self.kind}; use latent: last"
            )
        if self.latent == "path" and self.distribution != "categorical":
            raise ValueError("expected distribution: categorical with latent: path, which sums over paths")
        if self.posterior == "facts" and self.distribution != "categorical":
            raise ValueError("expected distribution: categorical with posterior: facts, an observed slot")
        if self.linear_start and self.kind != "end-to-end":
            raise ValueError(f"expected linear_start: 0 with kind: {self.kind}, received {self.linear_start}")
        if self.kind == "supervised" and self.facts == "none":
            raise ValueError("expected facts: likelihood or margin with kind: supervised, received none")
        return self


SECTIONS = (MemoryDataConfig, MemoryModelConfig)
