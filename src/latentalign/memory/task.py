"""The memory task: what the trainer, `evaluate` and `answer` ask for."""

import json
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from latentalign.alignment.prediction import Predictor
from latentalign.errors import UserError
from latentalign.files import open_atomic, read_json, write_atomic
from latentalign.memory.answering import answer_question
from latentalign.memory.config import SECTIONS, MemoryDataConfig, MemoryModelConfig
from latentalign.memory.dataset import StoryDataset
from latentalign.memory.model import MemoryModel
from latentalign.memory.stories import Story, format_story, read_stories, story_files
from latentalign.memory.vocabulary import Vocabulary
from latentalign.memory.worlds import tell_stories
from latentalign.task import CanAnswer, EvaluationOptions, Log, Task

logger = logging.getLogger(__name__)
FILE = "memory.json"
STORIES = "stories"
HELD_OUT = "held-out"


@dataclass(frozen=True)
class MemoryAssets:
    """What a trained run needs of its data."""

    words: tuple[str, ...]
    answers: tuple[str, ...]
    memory: int
    batch_size: int
    batches: int  # of an epoch
    held_out: float
    data_seed: int

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(self.words, self.answers)

    def save(self, folder: Path) -> None:
        write_atomic(folder / FILE, json.dumps(asdict(self), ensure_ascii=False, indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> "MemoryAssets":
        try:
            data = read_json(folder / FILE, "the vocabulary of the run; copy its folder again")
            return cls(**{**data, "words": tuple(data["words"]), "answers": tuple(data["answers"])})
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"{folder / FILE}: damaged; expected the vocabulary of the run, copy its folder again"
            ) from None


@dataclass(frozen=True)
class PreparedStories:
    assets: MemoryAssets
    train: StoryDataset
    valid: StoryDataset


def split_stories(stories: Sequence[Story], held_out: float, seed: int) -> tuple[list[Story], list[Story]]:
    """Whole stories held out at random: (the rest, held out), both in their old order; neither is empty."""
    if len(stories) < 2:
        raise UserError(f"data: expected at least 2 stories to hold some out, received {len(stories)}")
    count = min(max(1, round(held_out * len(stories))), len(stories) - 1)
    chosen = set(random.Random(seed).sample(range(len(stories)), count))
    rest = [story for number, story in enumerate(stories) if number not in chosen]
    return rest, [stories[number] for number in sorted(chosen)]


def _write_stories(path: Path, stories: Sequence[Story]) -> None:
    with open_atomic(path) as stream:
        for story in stories:
            stream.writelines(f"{line}\n" for line in format_story(story))


class StoriesToEvaluate(EvaluationOptions):
    """Stories in the bAbI format: a file, a folder or a pattern.

    `split` keeps the files with that text in their names; `held-out` keeps the stories that training on the same
    data held out.
    """

    data: Path
    split: str | None = None


class MemoryTask(Task, CanAnswer):
    """Question answering over stored facts."""

    name = "memory"
    DataConfig, ModelConfig = SECTIONS
    EvaluationConfig = StoriesToEvaluate

    def prepare(
        self,
        data: MemoryDataConfig,
        model: MemoryModelConfig,
        *,
        folder: Path,
        seed: int,
        log: Log,
    ) -> PreparedStories:
        """Read or tell the stories, collect the vocabulary, hold some out."""
        train, valid = self._stories(data, folder=folder, log=log)
        vocabulary = Vocabulary.collect(train)
        questions = sum(len(story.questions) for story in train)
        assets = MemoryAssets(
            words=vocabulary.words,
            answers=vocabulary.answers,
            memory=data.memory,
            batch_size=data.batch_size,
            batches=-(-questions // data.batch_size),
            held_out=data.held_out,
            data_seed=data.data_seed,
        )
        assets.save(folder)
        parts = []
        for name, stories in (("training", train), ("validation", valid)):
            dataset = self._dataset(assets, stories, bucket=data.bucket)
            if not len(dataset):
                raise UserError(f"data: the {name} stories hold no question; expected lines with a tab")
            log(f"{name}: {len(stories)} stories, {len(dataset)} questions")
            silent = sum(not story.questions for story in stories)
            if silent:
                log(f"{name}: {silent} stories without a question are not used")
            for line in dataset.remarks():
                log(f"{name}: {line}")
            parts.append(dataset)
        log(f"vocabulary: {len(vocabulary.words)} words, {len(vocabulary.answers) - 1} answers")
        if model.facts != "none" or model.posterior == "facts":
            _check_support(parts[0], log)
        return PreparedStories(assets, parts[0], parts[1])

    def _stories(self, data: MemoryDataConfig, *, folder: Path, log: Log) -> tuple[list[Story], list[Story]]:
        if not data.stories:
            told = tell_stories(data.worlds, data.data_seed)
            train, valid = split_stories(told, data.held_out, data.data_seed)
            _write_stories(folder / STORIES / "train.txt", train)
            _write_stories(folder / STORIES / "valid.txt", valid)
            log(f"generated worlds: {len(told)} stories, written to {STORIES}/ of the run folder")
            return train, valid
        stories = read_stories(data.stories)
        if data.valid:
            return stories, read_stories(data.valid)
        return split_stories(stories, data.held_out, data.data_seed)

    def load_assets(self, folder: Path) -> MemoryAssets:
        return MemoryAssets.load(folder)

    def build_model(
        self, model: MemoryModelConfig, assets: MemoryAssets, *, needs_posterior: bool
    ) -> MemoryModel:
        return MemoryModel(
            model,
            assets.vocabulary,
            memory=assets.memory,
            batches=assets.batches,
            needs_posterior=needs_posterior,
        )

    def dataset(self, assets: MemoryAssets, chosen: StoriesToEvaluate) -> StoryDataset:
        """Stories for `evaluate`."""
        data, split = chosen.data, chosen.split
        if split == HELD_OUT:
            stories = split_stories(read_stories([data]), assets.held_out, assets.data_seed)[1]
        else:
            files = story_files(data)
            named = [path for path in files if split is None or split in path.name]
            if not named:
                names = ", ".join(path.name for path in files[:5])
                raise UserError(
                    f"--split {split}: no file of {data} has it in its name ({names}); give a part of a "
                    f"name, or {HELD_OUT} for the stories held out from training"
                )
            stories = read_stories(named)
        dataset = self._dataset(assets, stories, detailed=True)
        for line in dataset.remarks():
            logger.warning("%s: %s", data, line)
        return dataset

    def _dataset(
        self,
        assets: MemoryAssets,
        stories: Sequence[Story],
        *,
        bucket: bool = True,
        detailed: bool = False,
    ) -> StoryDataset:
        return StoryDataset(
            stories,
            assets.vocabulary,
            memory=assets.memory,
            batch_size=assets.batch_size,
            bucket=bucket,
            detailed=detailed,
        )

    def answer(
        self,
        model: MemoryModel,
        assets: MemoryAssets,
        request: Mapping[str, Any],
        *,
        predictor: Predictor,
        top: int = 5,
        generator: torch.Generator | None = None,
    ) -> dict[str, Any]:
        """What `latentalign answer` prints; see `answer_question`."""
        return answer_question(
            model,
            assets.vocabulary,
            request,
            memory=assets.memory,
            predictor=predictor,
            top=top,
            generator=generator,
        )


TASK: Task = MemoryTask()


def _check_support(dataset: StoryDataset, log: Log) -> None:
    known = sum(bool(example.support) for example in dataset.examples)
    if not known:
        raise UserError(
            "data.stories: expected supporting facts after the answers (a second tab and fact numbers), "
            "found none; set model.facts: none and model.posterior: network"
        )
    if known < len(dataset):
        log(f"training: {len(dataset) - known} questions have no supporting fact in memory to learn from")
