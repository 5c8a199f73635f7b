"""Stories in the bAbI format: numbered facts, questions with an answer and the facts that support it."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from latentalign.errors import UserError
from latentalign.files import read_lines

_WORD = re.compile(r"[\w'-]+")
_FUNCTION_WORDS = frozenset(
    split
    for line in (
        "who whom whose what where when why how which many much is are was were be been do does did will",
        "would can could has have had the a an in on at to of from before after with and or not than you",
        "color colour",
    )
    for split in line.split()
)
EXAMPLE_LINE = "'3 Where is Mary?<tab>kitchen<tab>1'"


def split_words(text: str) -> tuple[str, ...]:
    """Lower-cased words without punctuation."""
    return tuple(_WORD.findall(text.lower()))


def question_pattern(words: Iterable[str]) -> str:
    """The form of a question: its function words, with '…' for whatever stands between them."""
    pattern: list[str] = []
    for word in words:
        piece = word if word in _FUNCTION_WORDS else "…"
        if piece != "…" or pattern[-1:] != ["…"]:
            pattern.append(piece)
    return " ".join(pattern)


@dataclass(frozen=True, slots=True)
class Fact:
    """One stored sentence."""

    text: str
    words: tuple[str, ...]

    @classmethod
    def from_text(cls, text: str) -> "Fact":
        return cls(text.strip(), split_words(text))


@dataclass(frozen=True, slots=True)
class Question:
    """A question, asked when `known` facts of its story have been told.

    `support` holds indices into the facts of the story, in the order of the reasoning; it is empty where
    the file names none.
    """

    text: str
    words: tuple[str, ...]
    answer: str
    known: int
    support: tuple[int, ...] = ()
    place: str = ""

    @property
    def pattern(self) -> str:
        return question_pattern(self.words)


@dataclass(frozen=True, slots=True)
class Story:
    """Facts in the order in which they were told, and the questions asked in between."""

    facts: tuple[Fact, ...]
    questions: tuple[Question, ...]
    source: str = ""


def normalise_answer(text: str) -> str:
    """Lower case; several words stay one answer, joined by commas or single blanks as they were."""
    return ",".join(" ".join(part.split()) for part in text.lower().split(","))


@dataclass
class _Draft:
    """A story while it is read."""

    source: str
    facts: list[Fact] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    fact_of_number: dict[int, int] = field(default_factory=dict)
    number: int = 0

    def finish(self) -> Story:
        return Story(tuple(self.facts), tuple(self.questions), self.source)

    def add_fact(self, text: str, place: str) -> None:
        fact = Fact.from_text(text)
        if not fact.words:
            raise UserError(
                f"{place}: expected a fact after the number, received nothing; write it or remove the line"
            )
        self.fact_of_number[self.number] = len(self.facts)
        self.facts.append(fact)

    def add_question(self, text: str, place: str) -> None:
        columns = text.split("\t")
        question, answer = columns[0].strip(), normalise_answer(columns[1].strip())
        if not split_words(question) or not answer:
            raise UserError(
                f"{place}: expected question, tab, answer, tab, supporting facts, received {text!r}; "
                f"see {EXAMPLE_LINE}"
            )
        if not self.facts:
            raise UserError(
                f"{place}: question before any fact ({question!r}); a story must tell at least one fact first"
            )
        support = self._support(" ".join(columns[2:]), place)
        self.questions.append(
            Question(question, split_words(question), answer, len(self.facts), support, place)
        )

    def _support(self, text: str, place: str) -> tuple[int, ...]:
        support = []
        for piece in text.replace(",", " ").split():
            number = int(piece) if piece.isdecimal() else 0
            if number not in self.fact_of_number:
                raise UserError(
                    f"{place}: supporting fact {piece} does not exist; expected the number of an earlier "
                    f"fact of the story (from {min(self.fact_of_number)} to {max(self.fact_of_number)})"
                )
            support.append(self.fact_of_number[number])
        return tuple(support)


def parse_stories(lines: Iterable[str], name: str) -> Iterator[Story]:
    """Read stories from numbered lines; `name` (a file) is used in errors. Blank lines are passed over."""
    draft: _Draft | None = None
    for line_number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place = f"{name}, line {line_number}"
        number, text = _split_number(line, place)
        if number == 1:
            if draft is not None:
                yield draft.finish()
            draft = _Draft(Path(name).name)
        elif draft is None or number != draft.number + 1:
            expected = "1" if draft is None else f"{draft.number + 1} or, where a new story starts, 1"
            raise UserError(
                f"{place}: expected number {expected}, received {number}; numbers go up by one within a "
                "story and restart at 1 with the next"
            )
        draft.number = number
        if "\t" in text:
            draft.add_question(text, place)
        else:
            draft.add_fact(text, place)
    if draft is not None:
        yield draft.finish()


def _split_number(line: str, place: str) -> tuple[int, str]:
    number, _, text = line.strip(" \r").partition(" ")
    if not number.isdecimal():
        raise UserError(
            f"{place}: expected a numbered line such as '1 Mary went home.', received {line[:60]!r}"
        )
    return int(number), text


def story_files(place: str | Path) -> list[Path]:
    """The files meant by a path: itself, every text file of a folder, or what a pattern with * matches."""
    path = Path(place)
    if path.is_dir():
        found = sorted(p for p in path.iterdir() if p.name.endswith((".txt", ".txt.gz")))
        wanted = "files ending in .txt or .txt.gz"
    elif "*" in path.name:
        found = sorted(path.parent.glob(path.name))
        wanted = "files that match the pattern"
    else:
        return [path]
    if not found:
        raise UserError(
            f"{place}: expected {wanted}, found none; give the stories as files in the bAbI format"
        )
    return found


def read_stories(places: Iterable[str | Path]) -> list[Story]:
    """Every story of the given files, folders or patterns; a file without any story is refused."""
    stories: list[Story] = []
    for place in places:
        for path in story_files(place):
            found = list(parse_stories(read_lines(path), str(path)))
            if not found:
                raise UserError(f"{path}: empty story; expected numbered facts such as '1 Mary went home.'")
            stories.extend(found)
    return stories


def read_facts(path: str | Path) -> tuple[Fact, ...]:
    """The facts of one story, for a question asked by hand: numbered lines, or one plain fact a line."""
    return parse_facts(read_lines(path), str(path))


def parse_facts(lines: Iterable[str], name: str) -> tuple[Fact, ...]:
    """The facts of one story from its lines; `name` says in errors where they came from."""
    lines = [line for line in lines if line.strip()]
    if not lines:
        raise UserError(f"{name}: empty story; expected at least one fact, one a line")
    if not lines[0].split(maxsplit=1)[0].isdecimal():
        return tuple(Fact.from_text(line) for line in lines)
    stories = list(parse_stories(lines, name))
    if len(stories) > 1:
        raise UserError(f"{name}: expected one story, received {len(stories)}; keep the lines of one of them")
    return stories[0].facts


def format_story(story: Story) -> Iterator[str]:
    """The numbered lines of a story, as `parse_stories` reads them."""
    number, told = 0, 0
    number_of_fact: list[int] = []

    def tell(upto: int) -> Iterator[str]:
        nonlocal number, told
        while told < upto:
            number += 1
            number_of_fact.append(number)
            yield f"{number} {story.facts[told].text}"
            told += 1

    for question in story.questions:
        yield from tell(question.known)
        number += 1
        support = " ".join(str(number_of_fact[fact]) for fact in question.support)
        yield f"{number} {question.text}\t{question.answer}\t{support}".rstrip("\t")
    yield from tell(len(story.facts))
