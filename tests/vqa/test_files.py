import gzip
import json

import pytest

from latentalign.errors import UserError
from latentalign.vqa.files import (
    VqaExample,
    read_examples,
    read_gold_regions,
    split_validation,
)

QUESTIONS = [
    {"image_id": 9, "question": "What color is the dog?", "question_id": 9000},
    {"image_id": 9, "question": "How many?", "question_id": 9001},
]
ANNOTATIONS = [
    {
        "question_type": kind,
        "multiple_choice_answer": main,
        "answers": [
            {"answer": said, "answer_confidence": "yes", "answer_id": n} for n, said in enumerate(all_said, 1)
        ],
        "image_id": 9,
        "answer_type": "other",
        "question_id": key,
    }
    for key, kind, main, all_said in [
        (9001, "how many", "Two", ["two", "2", "the 2"]),
        (9000, "what color is the", "brown", ["brown", "Brown", "black and brown"]),
    ]
]


def write(tmp_path, questions=QUESTIONS, annotations=ANNOTATIONS):
    paths = tmp_path / "questions.json", tmp_path / "annotations.json"
    paths[0].write_text(json.dumps({"task_type": "Open-Ended", "questions": questions}))
    paths[1].write_text(json.dumps({"annotations": annotations}))
    return paths


def test_joins_questions_with_annotations_and_normalises(tmp_path):
    examples = read_examples(*write(tmp_path))
    assert examples == [
        VqaExample(
            9000,
            9,
            "What color is the dog?",
            ("brown", "brown", "black and brown"),
            "brown",
            "what color is the",
        ),
        VqaExample(9001, 9, "How many?", ("2", "2", "2"), "2", "how many"),
    ]


def test_reads_gzipped_json(tmp_path):
    questions, annotations = write(tmp_path)
    questions.write_bytes(gzip.compress(questions.read_bytes()))
    assert len(read_examples(questions, annotations)) == 2


def fails(paths, *pieces):
    with pytest.raises(UserError) as caught:
        read_examples(*paths)
    assert "\n" not in str(caught.value)
    for piece in pieces:
        assert piece in str(caught.value)


def test_a_question_without_annotation_is_named(tmp_path):
    fails(write(tmp_path, annotations=ANNOTATIONS[:1]), "questions.json", "question 9000 has no annotation")


def test_files_that_are_not_vqa_are_named(tmp_path):
    questions, annotations = write(tmp_path)
    fails((questions, questions), "questions.json: not a VQA file", '"annotations"', "task_type")
    annotations.write_text("[1, 2]")
    fails((questions, annotations), "annotations.json: not a VQA file", "found list")
    annotations.write_text('{"annotations": [')
    fails((questions, annotations), "annotations.json: not JSON")
    fails((questions, tmp_path / "none.json"), "none.json: no such file")
    broken = [{key: value for key, value in ANNOTATIONS[0].items() if key != "answers"}]
    fails(write(tmp_path, annotations=broken), 'entry 0 of "annotations" lacks answers')
    broken = [{**ANNOTATIONS[1], "answers": ["brown"]}, ANNOTATIONS[0]]
    fails(write(tmp_path, annotations=broken), "question 9000 has no answers")


def test_half_of_validation_is_the_test_set_by_image_and_seed():
    examples = [VqaExample(key, key // 3, "?", ("yes",), "yes", "is") for key in range(63)]
    valid, test = split_validation(examples, seed=4)
    again = split_validation(examples, seed=4)
    other = split_validation(examples, seed=5)
    assert (valid, test) == again
    assert valid != other[0]
    assert sorted(e.question_id for e in valid + test) == list(range(63))
    assert not {e.image_id for e in valid} & {e.image_id for e in test}
    assert (len(valid), len(test)) == (33, 30)


def test_gold_regions_are_optional(tmp_path):
    assert read_gold_regions(tmp_path / "none.json") == {}
    (tmp_path / "gold.json").write_text('{"regions": {"12": [3, 4]}}')
    assert read_gold_regions(tmp_path / "gold.json") == {12: (3, 4)}
    (tmp_path / "gold.json").write_text("[]")
    with pytest.raises(UserError, match="regions"):
        read_gold_regions(tmp_path / "gold.json")
