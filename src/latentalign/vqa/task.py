"""VQA as a task of the trainer: its recipe sections, data and model, and one question at a time."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from latentalign.alignment.prediction import Predictor
from latentalign.errors import UserError
from latentalign.files import read_json, write_atomic
from latentalign.task import CanAnswerFromImages, CanConvert, EvaluationOptions, Log, Task
from latentalign.vqa.answering import answer_question
from latentalign.vqa.config import SECTIONS, VqaDataConfig, VqaModelConfig
from latentalign.vqa.dataset import VqaDataset, resolve
from latentalign.vqa.features import MARKER as FEATURES_MARKER
from latentalign.vqa.features import RegionFeatures, convert_features
from latentalign.vqa.files import VqaExample, read_examples, read_gold_regions, split_validation
from latentalign.vqa.model import VqaModel
from latentalign.vqa.scene_files import SETTINGS as SCENES_MARKER
from latentalign.vqa.scene_files import ensure_scenes
from latentalign.vqa.vocabulary import Answers, Words

_ASSETS = "vqa.json"


@dataclass(frozen=True)
class VqaAssets:
    """What a run needs to read questions and give answers."""

    words: Words
    answers: Answers
    feature_dim: int
    data: VqaDataConfig
    word_vectors: Tensor | None = None  # only while a run is being prepared


@dataclass(frozen=True)
class VqaPrepared:
    assets: VqaAssets
    train: VqaDataset
    valid: VqaDataset


class QuestionsToEvaluate(EvaluationOptions):
    """A folder with the files' usual names; without one, the folder the run was trained on."""

    data: Path | None = None
    split: Literal["train", "valid", "test"] = "test"


class VqaTask(Task, CanAnswerFromImages, CanConvert):
    """Visual question answering over region features."""

    name = "vqa"
    DataConfig, ModelConfig = SECTIONS
    EvaluationConfig = QuestionsToEvaluate

    def prepare(
        self,
        data: VqaDataConfig,
        model: VqaModelConfig,
        *,
        folder: Path,
        seed: int,
        log: Log,
    ) -> VqaPrepared:
        """Read the questions, keep the frequent answers, write both vocabularies into the run folder."""
        if data.scenes is not None:
            ensure_scenes(data.folder, data.scenes, log=log)
        features = RegionFeatures(resolve(data.folder, data.features))
        examples = _read(data, data.folder, "train")
        answers = Answers.collect(examples, minimum=data.min_answer_count)
        kept = [example for example in examples if any(answers.number(a) >= 0 for a in example.answers)]
        words = Words.collect((example.question for example in kept), minimum=data.min_word_count)
        log(
            f"{len(examples)} questions, {len(kept)} with one of {len(answers)} answers that occur "
            f"{data.min_answer_count} times or more ({len(examples) - len(kept)} dropped); {len(words)} words"
        )
        vectors = None
        if model.word_vectors is not None:
            vectors, found = words.load_vectors(model.word_vectors, model.word_dim)
            log(f"{model.word_vectors}: vectors of {found} of {len(words)} words")
        assets = VqaAssets(words, answers, features.dim, data, vectors)
        _save_assets(assets, folder)
        valid = _read(data, data.folder, "valid")
        log(f"validation: {len(valid)} questions, half of the file; the other half is the test set")
        return VqaPrepared(
            assets,
            train=_build_dataset(assets, kept, features, data.folder, "train", draw=True),
            valid=_build_dataset(assets, valid, features, data.folder, "valid", draw=False),
        )

    def load_assets(self, folder: Path) -> VqaAssets:
        path = Path(folder) / _ASSETS
        saved = read_json(path, "the vocabulary of a VQA run; copy its folder again")
        try:
            return VqaAssets(
                Words(tuple(saved["words"])),
                Answers(tuple(saved["answers"])),
                saved["feature_dim"],
                VqaDataConfig.model_validate_json(json.dumps(saved["data"])),
            )
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"{path}: damaged; expected the vocabulary of a VQA run, copy its folder again"
            ) from None

    def build_model(self, model: VqaModelConfig, assets: VqaAssets, *, needs_posterior: bool) -> VqaModel:
        return VqaModel(
            model,
            words=len(assets.words),
            answers=len(assets.answers),
            feature_dim=assets.feature_dim,
            needs_posterior=needs_posterior,
            word_vectors=assets.word_vectors,
        )

    def dataset(self, assets: VqaAssets, chosen: QuestionsToEvaluate) -> VqaDataset:
        """The questions of one split."""
        folder = chosen.data or assets.data.folder
        if chosen.data is None and assets.data.scenes is not None:
            ensure_scenes(folder, assets.data.scenes)
        features = RegionFeatures(resolve(folder, assets.data.features))
        if features.dim != assets.feature_dim:
            raise UserError(
                f"{features.folder}: features of size {features.dim}; the run was trained on size "
                f"{assets.feature_dim}"
            )
        examples = _read(assets.data, folder, chosen.split)
        return _build_dataset(assets, examples, features, folder, chosen.split, draw=False)

    def prepared_marker(self, data: VqaDataConfig) -> str:
        """The file of the features, or of the generated scenes."""
        return SCENES_MARKER if data.scenes is not None else FEATURES_MARKER

    def prepare_files(
        self,
        data: VqaDataConfig,
        model: VqaModelConfig,
        *,
        to: Path,
        seed: int,
        log: Log,
    ) -> None:
        """`latentalign prepare`: TSV features into memory-mapped arrays (`data.features` is to name them), or a
        folder of generated scenes (`data.folder`) where the recipe asks for scenes."""
        if data.scenes is not None:
            ensure_scenes(to, data.scenes, log=log)
            return
        if not data.feature_files:
            raise UserError("data.feature_files: expected the TSV files to convert, received none")
        sources = [resolve(data.folder, name) for name in data.feature_files]
        convert_features(sources, to, dtype=data.feature_type, log=log)

    def answer(
        self,
        model: VqaModel,
        assets: VqaAssets,
        request: Mapping[str, Any],
        *,
        predictor: Predictor,
        top: int = 5,
        generator: torch.Generator | None = None,
    ) -> dict[str, Any]:
        """One question about one image; see `asking.answer_question`."""
        return answer_question(model, assets, request, predictor=predictor, top=top, generator=generator)


TASK: Task = VqaTask()


def _read(data: VqaDataConfig, folder: Path, split: str) -> list[VqaExample]:
    name = "train" if split == "train" else "valid"
    questions = resolve(folder, getattr(data, f"{name}_questions"))
    annotations = resolve(folder, getattr(data, f"{name}_annotations"))
    examples = read_examples(questions, annotations)
    if split == "train":
        return examples
    return split_validation(examples, seed=data.split_seed)[("valid", "test").index(split)]


def _build_dataset(
    assets: VqaAssets,
    examples: list[VqaExample],
    features: RegionFeatures,
    folder: Path,
    split: str,
    *,
    draw: bool,
) -> VqaDataset:
    data = assets.data
    return VqaDataset(
        examples,
        features,
        words=assets.words,
        answers=assets.answers,
        gold=read_gold_regions(resolve(folder, data.gold_regions)),
        batch_size=data.batch_size,
        max_words=data.max_question_words,
        normalise_features=data.normalise_features,
        source=str(resolve(folder, data.train_questions if split == "train" else data.valid_questions)),
        draw=draw,
    )


def _save_assets(assets: VqaAssets, folder: Path) -> None:
    content = {
        "words": assets.words.words,
        "answers": assets.answers.answers,
        "feature_dim": assets.feature_dim,
        "data": assets.data.model_dump(mode="json"),
    }
    write_atomic(Path(folder) / _ASSETS, json.dumps(content, ensure_ascii=False, indent=1))
