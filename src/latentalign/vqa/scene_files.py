"""Generated scenes on disk in the formats of the real data: VQA 2.0 JSON, TSV of regions, PNG images."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from latentalign.errors import UserError
from latentalign.files import open_atomic, read_json, write_atomic
from latentalign.vqa.descriptors import describe_regions
from latentalign.vqa.features import ImageRegions, convert_features, encode_line
from latentalign.vqa.scene_questions import SceneQuestion, ask_questions, main_answer, simulate_answers
from latentalign.vqa.scenes import SIDE, make_scene, render

QUESTIONS = "v2_OpenEnded_mscoco_{split}_questions.json"
ANNOTATIONS = "v2_mscoco_{split}_annotations.json"
SPLITS = {"train": "train2014", "valid": "val2014"}
FEATURES = "features"
FEATURE_TABLE = "regions.tsv"
GOLD = "gold_regions.json"
SETTINGS = "scenes.json"


class ScenesConfig(BaseModel):
    """How many scenes to generate; the same settings give the same files."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    train_images: int = Field(2400, ge=1, le=1_000_000)
    valid_images: int = Field(800, ge=2, le=1_000_000)
    questions_per_image: int = Field(5, ge=1, le=1000)
    seed: int = 0


def ensure_scenes(
    folder: str | Path, config: ScenesConfig, *, log: Callable[[str], None] = lambda line: None
) -> None:
    """Generate the scenes into `folder` unless it already holds them; it appears when it is complete."""
    folder = Path(folder)
    settings = config.model_dump()
    if folder.exists() and any(folder.iterdir()):
        if not (folder / SETTINGS).is_file():
            raise UserError(f"{folder}: exists and holds no generated scenes; choose another data.folder")
        found = read_json(folder / SETTINGS, "the settings of generated scenes")
        if found != settings:
            raise UserError(
                f"{folder}: holds scenes of {found}, the recipe asks for {settings}; remove the folder or "
                "choose another data.folder"
            )
        return
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        write_scenes(partial, config, log=log)
        os.replace(partial, folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def write_scenes(
    folder: Path, config: ScenesConfig, *, log: Callable[[str], None] = lambda line: None
) -> None:
    """Images, region TSV (and its memory-mapped form), questions, annotations and gold regions."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    gold: dict[str, list[int]] = {}
    image_id = 0
    with open_atomic(folder / FEATURE_TABLE) as table:
        for split, count in (("train", config.train_images), ("valid", config.valid_images)):
            questions: list[dict[str, Any]] = []
            annotations: list[dict[str, Any]] = []
            for _ in range(count):
                image_id += 1
                rng = np.random.default_rng([config.seed, image_id])
                regions, asked = _make_image(folder, image_id, config.questions_per_image, rng)
                table.write(encode_line(regions) + "\n")
                for number, question in enumerate(asked):
                    key = image_id * 1000 + number
                    questions.append({"image_id": image_id, "question": question.text, "question_id": key})
                    annotations.append(_annotation(key, image_id, question, rng))
                    gold[str(key)] = list(question.regions)
            _write_split(folder, split, questions, annotations)
            log(f"{count} {split} scenes with {len(questions)} questions")
    write_atomic(folder / GOLD, json.dumps({"regions": gold}))
    convert_features([folder / FEATURE_TABLE], folder / FEATURES)
    write_atomic(folder / SETTINGS, json.dumps(config.model_dump()))


def image_path(folder: str | Path, image_id: int) -> Path:
    return Path(folder) / "images" / f"{image_id:012d}.png"


def _make_image(
    folder: Path, image_id: int, questions: int, rng: np.random.Generator
) -> tuple[ImageRegions, list[SceneQuestion]]:
    scene = make_scene(rng)
    image = render(scene, rng)
    image.save(image_path(folder, image_id), compress_level=1)
    features = describe_regions(image, scene.boxes)
    return ImageRegions(image_id, SIDE, SIDE, scene.boxes, features), ask_questions(scene, questions, rng)


def _annotation(key: int, image_id: int, question: SceneQuestion, rng: np.random.Generator) -> dict[str, Any]:
    said = simulate_answers(question, rng)
    return {
        "question_type": question.kind,
        "multiple_choice_answer": main_answer(said),
        "answers": [
            {"answer": answer, "answer_confidence": "yes", "answer_id": number}
            for number, answer in enumerate(said, start=1)
        ],
        "image_id": image_id,
        "answer_type": "yes/no" if question.answer in ("yes", "no") else "other",
        "question_id": key,
    }


def _write_split(
    folder: Path, split: str, questions: list[dict[str, Any]], annotations: list[dict[str, Any]]
) -> None:
    name = SPLITS[split]
    head = {
        "info": {"description": "Generated scenes of coloured shapes", "version": "1.0"},
        "data_type": "mscoco",
        "data_subtype": name,
        "license": {"name": "MIT"},
    }
    write_atomic(
        folder / QUESTIONS.format(split=name),
        json.dumps({**head, "task_type": "Open-Ended", "questions": questions}),
    )
    write_atomic(folder / ANNOTATIONS.format(split=name), json.dumps({**head, "annotations": annotations}))
