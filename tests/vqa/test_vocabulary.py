import pytest
import torch

from latentalign.errors import UserError
from latentalign.vqa.files import VqaExample
from latentalign.vqa.vocabulary import PADDING, UNKNOWN, Answers, Words, split_words


def example(answer, key=0):
    return VqaExample(key, 1, "what?", (answer,) * 10, answer, "what")


def test_splits_questions_into_words():
    assert split_words("What's the man's hat-colour? 12!") == [
        "what's",
        "the",
        "man's",
        "hat",
        "colour",
        "12",
    ]


def test_words_are_numbered_and_rare_ones_unknown():
    words = Words.collect(["is it red", "is it blue", "is red"], minimum=2)
    assert words.words == ("<pad>", "<unk>", "is", "it", "red")
    assert words.encode("Is it green, or red?", limit=4) == [2, 3, UNKNOWN, UNKNOWN]
    assert words.encode("?!", limit=4) == [UNKNOWN]


def test_answers_below_the_frequency_are_left_out():
    examples = [example("yes")] * 9 + [example("no")] * 10 + [example("maybe")] * 8 + [example("")] * 20
    answers = Answers.collect(examples, minimum=9)
    assert answers.answers == ("no", "yes")
    assert (answers.number("yes"), answers.number("maybe")) == (1, -1)


def test_no_answer_above_the_frequency_is_an_error():
    with pytest.raises(
        UserError, match=r"min_answer_count: no answer of 3 questions occurs 9 times .*'red' with 2"
    ):
        Answers.collect([example("red"), example("red"), example("blue")], minimum=9)


def test_pretrained_vectors_come_from_text(tmp_path):
    words = Words.collect(["red blue green"])
    path = tmp_path / "vectors.txt"
    path.write_text("3 2\nred 1 2\nother 5 6\nblue -1 0.5\n")
    vectors, found = words.load_vectors(path, 2)
    assert found == 2
    assert vectors.shape == (5, 2)
    rows = dict(zip(words.words, vectors.tolist(), strict=True))
    assert rows["red"] == [1.0, 2.0]
    assert rows["blue"] == [-1.0, 0.5]
    assert vectors[PADDING].tolist() == [0, 0]
    assert torch.isfinite(vectors).all()


def test_vectors_of_another_size_or_without_numbers_are_named(tmp_path):
    words = Words.collect(["red"])
    path = tmp_path / "vectors.txt"
    path.write_text("red 1 2\nblue 1 2 3\n")
    with pytest.raises(UserError, match=r"line 2: expected a word and 2 numbers, received 3"):
        words.load_vectors(path, 2)
    path.write_text("blue 1 2\nred 1 x\n")
    with pytest.raises(UserError, match=r"line 2: expected numbers after 'red'"):
        words.load_vectors(path, 2)
