"""The bAbI format: what is read, what is refused and in which words."""

import gzip
from pathlib import Path

import pytest

from latentalign.errors import UserError
from latentalign.memory.stories import (
    format_story,
    parse_stories,
    question_pattern,
    read_facts,
    read_stories,
    split_words,
)

TWO_STORIES = """\
1 Mary went to the kitchen.
2 John took the milk there.
3 Where is Mary?\tkitchen\t1
4 Mary went to the garden.
5 Where is Mary? \tgarden\t4
1 Sandra is not in the hall.
2 How do you go from here to there?\tN,e\t1
"""


def parse(text: str) -> list:
    return list(parse_stories(text.splitlines(), "a.txt"))


def test_facts_questions_and_support_are_read() -> None:
    first, second = parse(TWO_STORIES)
    assert [fact.text for fact in first.facts] == [
        "Mary went to the kitchen.",
        "John took the milk there.",
        "Mary went to the garden.",
    ]
    assert [(q.answer, q.known, q.support) for q in first.questions] == [
        ("kitchen", 2, (0,)),
        ("garden", 3, (2,)),  # line 4 is the third fact: questions take a number but no slot
    ]
    assert first.facts[0].words == ("mary", "went", "to", "the", "kitchen")
    assert second.questions[0].answer == "n,e"
    assert second.source == "a.txt"


def test_format_is_the_inverse_of_parse() -> None:
    stories = parse(TWO_STORIES)
    again = parse("\n".join(line for story in stories for line in format_story(story)))
    assert [(s.facts, [(q.text, q.answer, q.support) for q in s.questions]) for s in again] == [
        (s.facts, [(q.text, q.answer, q.support) for q in s.questions]) for s in stories
    ]


def test_support_may_be_absent() -> None:
    assert parse("1 Mary left.\n2 Who left?\tMary")[0].questions[0].support == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 Where is Mary?\tkitchen\t1", "a.txt, line 1: question before any fact"),
        ("1 A b.\n2 C?\td\t1\n1 Where is Mary?\tkitchen\t1", "a.txt, line 3: question before any fact"),
        ("1 A b.\n2 C d.\n3 Where?\te\t4", r"line 3: supporting fact 4 does not exist.*\(from 1 to 2\)"),
        ("1 A b.\n2 Where?\te\t1\n3 Where?\te\t2", "line 3: supporting fact 2 does not exist"),
        ("1 A b.\n2 Where?\te\tfirst", "line 2: supporting fact first does not exist"),
        ("1 A b.\n2 C d.\n4 E f.", "line 3: expected number 3 or, where a new story starts, 1, received 4"),
        ("1 A b.\n2 C d.\n2 E f.", "line 3: expected number 3 or"),
        ("2 A b.", "line 1: expected number 1, received 2"),
        ("Mary left.", "line 1: expected a numbered line"),
        ("1 A b.\n2 .", "line 2: expected a fact after the number"),
        ("1 A b.\n2 \tkitchen\t1", "line 2: expected question, tab, answer"),
        ("1 A b.\n2 Where?\t\t1", "line 2: expected question, tab, answer"),
    ],
)
def test_bad_lines_are_refused_with_their_place(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_files_folders_and_patterns(tmp_path: Path) -> None:
    (tmp_path / "qa1_train.txt").write_text("1 A b.\n2 C?\td\t1\n")
    (tmp_path / "qa2_train.txt.gz").write_bytes(gzip.compress(b"1 A b.\n2 C?\te\t1\n"))
    (tmp_path / "notes.md").write_text("not a story")
    assert [s.source for s in read_stories([tmp_path])] == ["qa1_train.txt", "qa2_train.txt.gz"]
    assert len(read_stories([tmp_path / "qa1*"])) == 1
    assert len(read_stories([tmp_path / "qa2_train.txt.gz"])) == 1
    with pytest.raises(UserError, match="found none"):
        read_stories([tmp_path / "qa9*"])
    with pytest.raises(UserError, match="no such file"):
        read_stories([tmp_path / "absent.txt"])


def test_an_empty_file_is_an_empty_story(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(UserError, match=r"empty\.txt: empty story"):
        read_stories([tmp_path / "empty.txt"])
    with pytest.raises(UserError, match=r"empty\.txt: empty story"):
        read_facts(tmp_path / "empty.txt")


def test_a_story_given_by_hand(tmp_path: Path) -> None:
    plain, numbered, two = tmp_path / "plain.txt", tmp_path / "numbered.txt", tmp_path / "two.txt"
    plain.write_text("Mary left.\nJohn stayed.\n")
    numbered.write_text("1 Mary left.\n2 John stayed.\n")
    two.write_text(TWO_STORIES)
    assert read_facts(plain) == read_facts(numbered)
    with pytest.raises(UserError, match="expected one story, received 2"):
        read_facts(two)


def test_words_and_patterns() -> None:
    assert split_words("Julie's well-lit Room, no?") == ("julie's", "well-lit", "room", "no")
    assert (
        question_pattern(split_words("Where was the red apple before the hall?"))
        == "where was the … before the …"
    )
    assert question_pattern(()) == ""
