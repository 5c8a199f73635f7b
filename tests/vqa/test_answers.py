import itertools

import pytest

from latentalign.vqa.answers import (
    _CONTRACTIONS,
    normalise_answer,
    official_score,
    simple_score,
)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("The Red Square", "red square"),
        ("a  dog and an owl", "dog and owl"),
        ("Two", "2"),
        ("none", "0"),
        ("ten o clock", "10 o clock"),
        ("oclock", "o'clock"),
        ("dont know", "don't know"),
        ("couldn'tve", "couldn't've"),
        ("couldnt've", "couldn't've"),
        ("couldntve", "couldntve"),
        ("yes.", "yes"),
        ("3.5", "3.5"),
        ("1,000", "1000"),
        ("black/white", "black white"),
        ("black / white", "black white"),
        ("t-shirt", "t shirt"),
        ("t-shirt, red", "t shirt red"),
        ("really?!", "really"),
        (" blue\n", "blue"),
        ("let's", "let's"),
        ("", ""),
    ],
)
def test_normalises_as_the_official_evaluation(raw, expected):
    assert normalise_answer(raw) == expected


def test_a_comma_inside_a_number_removes_every_sign_of_the_answer():
    # with a number such as 1,000 in the answer the evaluation deletes signs instead of replacing them
    assert normalise_answer("1,000-meter") == "1000meter"
    assert normalise_answer("1000-meter") == "1000 meter"


def test_contractions_lack_exactly_one_apostrophe():
    assert len(_CONTRACTIONS) == 114
    for short, full in _CONTRACTIONS.items():
        if full != "somebodyd":
            assert full.count("'") == short.count("'") + 1
            assert full.replace("'", "") == short.replace("'", "")


@pytest.mark.parametrize("matches", range(11))
def test_official_score_is_the_mean_over_leave_one_out_subsets(matches):
    people = ["said it"] * matches + ["other"] * (10 - matches)
    subsets = list(itertools.combinations(people, 9))
    expected = sum(min(rest.count("said it") / 3, 1) for rest in subsets) / len(subsets)
    assert official_score(matches, 10) == pytest.approx(expected)


def test_scores_of_an_answer():
    people = ["Red", "red.", "the red", "orange", *["maroon"] * 6]
    said = [normalise_answer(answer) for answer in people]
    assert [said.count(answer) for answer in ("red", "orange", "blue")] == [3, 1, 0]
    assert [simple_score(matches) for matches in (3, 2, 1, 0)] == pytest.approx([1.0, 2 / 3, 1 / 3, 0.0])
    assert [official_score(matches, 10) for matches in (3, 1, 0)] == pytest.approx(
        [(3 * 2 / 3 + 7) / 10, 0.3, 0.0]
    )
    assert official_score(1, 1) == pytest.approx(1 / 3)
