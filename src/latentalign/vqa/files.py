"""VQA 2.0 question and annotation files, joined and checked."""

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from latentalign.errors import UserError
from latentalign.files import require_file
from latentalign.vqa.answers import normalise_answer

_QUESTION_KEYS = ("question_id", "image_id", "question")
_ANNOTATION_KEYS = ("question_id", "answers", "multiple_choice_answer", "question_type")


@dataclass(frozen=True)
class VqaExample:
    """One question about one image with what people answered (normalised)."""

    question_id: int
    image_id: int
    question: str
    answers: tuple[str, ...]
    main_answer: str
    question_type: str


def read_json(path: str | Path) -> Any:
    """A JSON file, plain or gzipped."""
    raw = require_file(path, "a JSON file of VQA 2.0").read_bytes()
    try:
        return json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    except (ValueError, OSError, EOFError, zlib.error, RecursionError) as error:
        raise UserError(f"{path}: not JSON ({error}); expected a file of VQA 2.0") from None


def read_questions(path: str | Path) -> list[dict[str, Any]]:
    """The questions of a VQA question file."""
    return _records(path, "questions", _QUESTION_KEYS)


def read_examples(questions: str | Path, annotations: str | Path) -> list[VqaExample]:
    """Every question with its annotation, in the order of the question file."""
    asked = read_questions(questions)
    answered = {
        record["question_id"]: record for record in _records(annotations, "annotations", _ANNOTATION_KEYS)
    }
    normalised: dict[str, str] = {}  # few different answers are given many times
    examples = []
    for record in asked:
        annotation = answered.get(record["question_id"])
        if annotation is None:
            raise UserError(
                f"{questions}: question {record['question_id']} has no annotation in {annotations}; expected "
                "the two files of the same split"
            )
        examples.append(_join(record, annotation, normalised, place=str(annotations)))
    return examples


def _join(
    question: Mapping[str, Any], annotation: Mapping[str, Any], normalised: dict[str, str], *, place: str
) -> VqaExample:
    def clean(text: Any) -> str:
        text = str(text)
        if text not in normalised:
            normalised[text] = normalise_answer(text)
        return normalised[text]

    try:
        answers = tuple(clean(answer["answer"]) for answer in annotation["answers"])
    except (TypeError, KeyError):
        answers = ()
    if not answers:
        raise UserError(
            f"{place}: question {question['question_id']} has no answers; expected a list such as "
            '[{"answer": "yes", "answer_id": 1}, …]'
        )
    return VqaExample(
        question_id=int(question["question_id"]),
        image_id=int(question["image_id"]),
        question=str(question["question"]),
        answers=answers,
        main_answer=clean(annotation["multiple_choice_answer"]),
        question_type=str(annotation["question_type"]),
    )


def _records(path: str | Path, name: str, keys: tuple[str, ...]) -> list[dict[str, Any]]:
    content = read_json(path)
    records = content.get(name) if isinstance(content, dict) else None
    if not isinstance(records, list) or not records:
        found = sorted(content)[:6] if isinstance(content, dict) else type(content).__name__
        raise UserError(f'{path}: not a VQA file: expected a list under "{name}", found {found}')
    for number, record in enumerate(records):
        missing = [key for key in keys if not isinstance(record, dict) or key not in record]
        if missing:
            raise UserError(f'{path}: not a VQA file: entry {number} of "{name}" lacks {", ".join(missing)}')
    return records


def split_validation(examples: list[VqaExample], *, seed: int) -> tuple[list[VqaExample], list[VqaExample]]:
    """Half of the validation images for validation, the other half (with their questions) for testing."""
    images = np.array(sorted({example.image_id for example in examples}))
    shuffled = np.random.default_rng(seed).permutation(images)
    chosen = set(shuffled[: (len(images) + 1) // 2].tolist())
    valid = [example for example in examples if example.image_id in chosen]
    test = [example for example in examples if example.image_id not in chosen]
    return valid, test


def read_gold_regions(path: str | Path) -> dict[int, tuple[int, ...]]:
    """Regions known to hold the answer, by question; empty where there is no such file (real data)."""
    if not Path(path).is_file():
        return {}
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("regions"), dict):
        raise UserError(f'{path}: expected {{"regions": {{"question id": [region, …]}}}}')
    return {int(key): tuple(int(region) for region in regions) for key, regions in content["regions"].items()}
