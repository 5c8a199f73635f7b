"""Generated worlds, checked by an interpreter that reads only the told sentences."""

import re

import pytest
from pydantic import ValidationError

from latentalign.memory.stories import Story, format_story, parse_stories
from latentalign.memory.worlds import COUNTS, KINDS, WorldsConfig, tell_stories

STORIES = tell_stories(WorldsConfig(stories=700), seed=3)


def interpret(story: Story, upto: int) -> tuple[dict, dict, dict]:
    """Where people are (and are not), what they hold in order, and where every thing has been."""
    place: dict[str, str] = {}
    absent: dict[str, str] = {}
    held: dict[str, list[str]] = {}
    trail: dict[str, list[str]] = {}
    for fact in story.facts[:upto]:
        text = fact.text.rstrip(".")
        if found := re.fullmatch(r"(\w+) (?:walked|went|ran|strolled) to the (\w+)", text):
            person, where = found.groups()
            place[person] = where
            absent.pop(person, None)
            for thing in held.get(person, []):
                trail[thing].append(where)
        elif found := re.fullmatch(r"(\w+) is (?:not|no longer) in the (\w+)", text):
            absent[found[1]] = found[2]
        elif found := re.fullmatch(r"(\w+) (?:picked up|took|grabbed) the (\w+)", text):
            held.setdefault(found[1], []).append(found[2])
            trail.setdefault(found[2], []).append(place[found[1]])
        elif found := re.fullmatch(r"(\w+) (?:put down|left|dropped) the (\w+)", text):
            held[found[1]].remove(found[2])
        else:
            raise AssertionError(text)
    return {"place": place, "absent": absent}, held, trail


def expected_answer(story: Story, question) -> str:
    state, held, trail = interpret(story, question.known)
    text = question.text.rstrip("?")
    if found := re.fullmatch(r"Where is the (\w+)", text):
        return trail[found[1]][-1]
    if found := re.fullmatch(r"Where is (\w+)", text):
        return state["place"][found[1]]
    if found := re.fullmatch(r"Where was the (\w+) before the (\w+)", text):
        places = [p for i, p in enumerate(trail[found[1]]) if i == 0 or trail[found[1]][i - 1] != p]
        assert places.count(found[2]) == 1
        return places[places.index(found[2]) - 1]
    if found := re.fullmatch(r"Is (\w+) in the (\w+)", text):
        if state["absent"].get(found[1]) == found[2]:
            return "no"
        return "yes" if state["place"][found[1]] == found[2] else "no"
    if found := re.fullmatch(r"How many things is (\w+) carrying", text):
        return COUNTS[len(held.get(found[1], []))]
    found = re.fullmatch(r"What is (\w+) carrying", text)
    assert found
    return ",".join(held.get(found[1], [])) or "nothing"


def test_every_answer_follows_from_the_told_facts() -> None:
    for story in STORIES:
        for question in story.questions:
            assert question.answer == expected_answer(story, question), list(format_story(story))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_told_with_its_number_of_supporting_facts(kind: str) -> None:
    questions = [q for story in STORIES if story.source == kind for q in story.questions]
    assert len(questions) >= 90
    assert all(q.support and max(q.support) < q.known for q in questions)
    sizes = {len(q.support) for q in questions}
    wanted = {"one-fact": {1}, "two-facts": {2}, "three-facts": {3}, "yes-no": {1}, "negation": {1}}
    assert sizes == wanted.get(kind, sizes)
    assert len({q.answer for q in questions}) >= 2


def test_two_facts_name_the_thing_and_then_the_place() -> None:
    for story in STORIES:
        for question in story.questions if story.source == "two-facts" else ():
            thing, place = (story.facts[fact].text for fact in question.support)
            assert question.words[-1] in thing
            assert question.answer in place


def test_worlds_are_in_the_babi_format_and_reproducible() -> None:
    lines = [line for story in STORIES for line in format_story(story)]
    assert [s.facts for s in parse_stories(lines, "worlds")] == [s.facts for s in STORIES]
    assert tell_stories(WorldsConfig(stories=20), seed=3) == tell_stories(WorldsConfig(stories=20), seed=3)
    assert tell_stories(WorldsConfig(stories=20), seed=3) != tell_stories(WorldsConfig(stories=20), seed=4)


def test_stories_too_short_for_their_questions_are_refused() -> None:
    with pytest.raises(ValidationError, match="4 <= fewest <= most"):
        WorldsConfig(facts=(2, 8))
    story = tell_stories(WorldsConfig(stories=1, kinds=("three-facts",), facts=(4, 4), objects=1), seed=0)[0]
    assert len(story.facts) == 4
