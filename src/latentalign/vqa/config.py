"""The `data:` and `model:` sections of a VQA recipe. Defaults live here and nowhere else."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from latentalign.vqa.scene_files import ANNOTATIONS, FEATURES, GOLD, QUESTIONS, SPLITS, ScenesConfig


class VqaDataConfig(BaseModel):
    """Files of VQA 2.0 by their official names inside one folder, and how they are read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    folder: Path
    scenes: ScenesConfig | None = None  # generate this folder when it is not there yet
    train_questions: str = QUESTIONS.format(split=SPLITS["train"])
    train_annotations: str = ANNOTATIONS.format(split=SPLITS["train"])
    valid_questions: str = QUESTIONS.format(split=SPLITS["valid"])
    valid_annotations: str = ANNOTATIONS.format(split=SPLITS["valid"])
    features: str = FEATURES  # folder that `latentalign prepare` writes, inside `folder` unless absolute
    feature_files: tuple[str, ...] = ()  # TSV files it is made from
    feature_type: Literal["float32", "float16"] = "float32"  # on disk
    gold_regions: str = GOLD  # optional: known on generated scenes only
    normalise_features: bool = False  # every region to length 1
    min_answer_count: int = Field(9, ge=1)  # questions with this main answer, to keep the answer
    min_word_count: int = Field(1, ge=1)
    max_question_words: int = Field(14, ge=1)  # longer questions are cut
    batch_size: int = Field(64, ge=1)
    split_seed: int = 0  # which half of validation is the test set


class VqaModelConfig(BaseModel):
    """Sizes of the model and of its inference network."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    word_dim: int = Field(300, ge=1)
    word_vectors: Path | None = None  # pretrained, as text: a word and its numbers on every line
    question_dim: int = Field(512, ge=1)
    # a learnt layer over the features; none: the features as they are
    region_dim: int | None = Field(None, ge=1)
    attention_dim: int = Field(512, ge=1)
    answer_hidden_dim: int = Field(1024, ge=1)
    posterior_answer_dim: int = Field(300, ge=1)
    posterior_hidden_dim: int = Field(512, ge=1)
    posterior_from_prior: bool = False  # q ∝ p · exp(score), as the exact posterior is p · f
    normalizer: Literal["softmax", "sparsemax", "entmax15"] = "softmax"  # of prior and posterior scores
    dropout: float = Field(0.3, ge=0, lt=1)


SECTIONS = (VqaDataConfig, VqaModelConfig)
