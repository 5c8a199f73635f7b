"""Small worlds of people, places and objects, told in the bAbI format with their supporting facts."""

import random
from collections.abc import Callable
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from latentalign.memory.stories import Fact, Question, Story, split_words

PEOPLE = ("Ada", "Boris", "Chen", "Dina", "Emil", "Farah", "Goran", "Hana")
PLACES = ("library", "cellar", "attic", "harbour", "market", "bakery", "workshop", "orchard")
OBJECTS = ("lantern", "key", "basket", "map", "coin", "kettle", "violin", "rope")
MOVES = ("walked to", "went to", "ran to", "strolled to")
TAKES = ("picked up", "took", "grabbed")
DROPS = ("put down", "left", "dropped")
COUNTS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight")

Kind = Literal["one-fact", "two-facts", "three-facts", "yes-no", "counting", "lists", "negation"]
KINDS: tuple[Kind, ...] = ("one-fact", "two-facts", "three-facts", "yes-no", "counting", "lists", "negation")


MOST_FACTS = 10_000  # of a story


class WorldsConfig(BaseModel):
    """How many worlds to tell, and how large they are."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kinds: tuple[Kind, ...] = Field(default=KINDS, min_length=1)
    stories: int = Field(default=2000, ge=1, le=1_000_000)
    facts: tuple[int, int] = (4, 12)  # fewest and most facts of a story
    questions: int = Field(default=2, ge=1, le=1000)  # asked of a story, at most
    people: int = Field(default=4, ge=2, le=len(PEOPLE))
    places: int = Field(default=6, ge=2, le=len(PLACES))
    objects: int = Field(default=4, ge=1, le=len(OBJECTS))

    @field_validator("facts")
    @classmethod
    def _long_enough(cls, facts: tuple[int, int]) -> tuple[int, int]:
        # a walk with a thing in hand takes three facts at least, and must be likely enough to happen
        if not 4 <= facts[0] <= facts[1] <= MOST_FACTS:
            raise ValueError(
                f"expected [fewest, most] with 4 <= fewest <= most <= {MOST_FACTS}, received {list(facts)}"
            )
        return facts


Asked = tuple[str, str, tuple[int, ...]]  # question, answer, supporting facts


class _World:
    """The state of a world while its story is told. Every event remembers the fact that told it."""

    def __init__(self, config: WorldsConfig, rng: random.Random) -> None:
        self.rng = rng
        self.people = PEOPLE[: config.people]
        self.places = PLACES[: config.places]
        self.objects = OBJECTS[: config.objects]
        self.facts: list[str] = []
        self.moves: dict[str, list[tuple[str, int]]] = {person: [] for person in self.people}
        self.absent: dict[str, tuple[str, int] | None] = dict.fromkeys(self.people)
        self.handled: dict[str, list[int]] = {person: [] for person in self.people}
        self.holder: dict[str, tuple[str, int] | None] = dict.fromkeys(self.objects)
        # where a thing has been: (place, the facts that say so)
        self.trail: dict[str, list[tuple[str, tuple[int, ...]]]] = {thing: [] for thing in self.objects}

    def tell(self, text: str) -> int:
        self.facts.append(text)
        return len(self.facts) - 1

    def held_by(self, person: str) -> list[tuple[str, int]]:
        """What a person holds with the fact of the taking, in the order of the telling."""
        held = [(thing, taken[1]) for thing, taken in self.holder.items() if taken and taken[0] == person]
        return sorted(held, key=lambda pair: pair[1])

    def move(self, person: str) -> None:
        here = self.moves[person][-1][0] if self.moves[person] else None
        place = self.rng.choice([place for place in self.places if place != here])
        fact = self.tell(f"{person} {self.rng.choice(MOVES)} the {place}.")
        self.moves[person].append((place, fact))
        self.absent[person] = None
        for thing, taken in self.held_by(person):
            self.trail[thing].append((place, (taken, fact)))

    def deny(self, person: str) -> None:
        place = self.rng.choice(self.places)
        if self.moves[person] and self.moves[person][-1][0] == place:
            fact = self.tell(f"{person} is no longer in the {place}.")
        else:
            fact = self.tell(f"{person} is not in the {place}.")
        self.absent[person] = (place, fact)

    def handle(self, person: str) -> None:
        """Take something that lies about, or put something down; a walk where neither is possible."""
        held = self.held_by(person)
        free = [
            thing for thing, taken in self.holder.items() if taken is None and self._reachable(thing, person)
        ]
        if not self.moves[person] or not (held or free):
            self.move(person)
        elif held and (not free or self.rng.random() < 0.4):
            thing, _ = self.rng.choice(held)
            fact = self.tell(f"{person} {self.rng.choice(DROPS)} the {thing}.")
            self.holder[thing] = None
            place, move = self.moves[person][-1]
            self.trail[thing].append((place, (fact, move)))
            self.handled[person].append(fact)
        else:
            thing = self.rng.choice(free)
            fact = self.tell(f"{person} {self.rng.choice(TAKES)} the {thing}.")
            self.holder[thing] = (person, fact)
            place, move = self.moves[person][-1]
            self.trail[thing].append((place, (fact, move)))
            self.handled[person].append(fact)

    def _reachable(self, thing: str, person: str) -> bool:
        trail = self.trail[thing]
        return not trail or (bool(self.moves[person]) and trail[-1][0] == self.moves[person][-1][0])


def _ask_one(world: _World) -> Asked | None:
    known = [person for person in world.people if world.moves[person]]
    if not known:
        return None
    person = world.rng.choice(known)
    place, fact = world.moves[person][-1]
    return f"Where is {person}?", place, (fact,)


def _ask_two(world: _World) -> Asked | None:
    known = [thing for thing in world.objects if world.trail[thing]]
    if not known:
        return None
    thing = world.rng.choice(known)
    place, support = world.trail[thing][-1]
    return f"Where is the {thing}?", place, support


def _ask_three(world: _World) -> Asked | None:
    """A thing that was carried from one place to another: the taking and the two walks."""
    options = []
    for thing in world.objects:
        for before, after in zip(world.trail[thing], world.trail[thing][1:], strict=False):
            if before[0] != after[0]:
                options.append((thing, before, after))
    if not options:
        return None
    thing, before, after = world.rng.choice(options)
    later = [place for place, _ in world.trail[thing]]
    if later.count(after[0]) > 1:  # two arrivals at that place: the question would be ambiguous
        return None
    support = tuple(dict.fromkeys((*before[1], *after[1])))
    return f"Where was the {thing} before the {after[0]}?", before[0], support


def _ask_yes_no(world: _World) -> Asked | None:
    asked = _ask_one(world)
    if asked is None:
        return None
    person, place = asked[0][len("Where is ") : -1], asked[1]
    if world.rng.random() < 0.5:
        return f"Is {person} in the {place}?", "yes", asked[2]
    other = world.rng.choice([name for name in world.places if name != place])
    return f"Is {person} in the {other}?", "no", asked[2]


def _carriers(world: _World) -> list[str]:
    return [person for person in world.people if world.handled[person]]


def _ask_count(world: _World) -> Asked | None:
    carriers = _carriers(world)
    if not carriers:
        return None
    person = world.rng.choice(carriers)
    answer = COUNTS[len(world.held_by(person))]
    return f"How many things is {person} carrying?", answer, tuple(world.handled[person])


def _ask_list(world: _World) -> Asked | None:
    carriers = _carriers(world)
    if not carriers:
        return None
    person = world.rng.choice(carriers)
    held = world.held_by(person)
    if not held:
        return f"What is {person} carrying?", "nothing", tuple(world.handled[person])
    return (
        f"What is {person} carrying?",
        ",".join(thing for thing, _ in held),
        tuple(fact for _, fact in held),
    )


def _ask_negation(world: _World) -> Asked | None:
    denied = [person for person in world.people if world.absent[person]]
    if not denied or world.rng.random() < 0.5:
        present = [person for person in world.people if world.moves[person] and not world.absent[person]]
        if not present:
            return None
        person = world.rng.choice(present)
        place, fact = world.moves[person][-1]
        return f"Is {person} in the {place}?", "yes", (fact,)
    person = world.rng.choice(denied)
    absence = world.absent[person]
    assert absence is not None
    return f"Is {person} in the {absence[0]}?", "no", (absence[1],)


def _step_walks(world: _World) -> None:
    world.move(world.rng.choice(world.people))


def _step_things(world: _World) -> None:
    # few people hold things at a time, so that walks with a thing in hand do happen
    person = world.rng.choice(world.people[:2])
    if world.rng.random() < 0.5:
        world.handle(person)
    else:
        world.move(world.rng.choice(world.people))


def _step_negation(world: _World) -> None:
    person = world.rng.choice(world.people)
    if world.rng.random() < 0.4:
        world.deny(person)
    else:
        world.move(person)


_PLOTS: dict[Kind, tuple[Callable[[_World], None], Callable[[_World], Asked | None]]] = {
    "one-fact": (_step_walks, _ask_one),
    "two-facts": (_step_things, _ask_two),
    "three-facts": (_step_things, _ask_three),
    "yes-no": (_step_walks, _ask_yes_no),
    "counting": (_step_things, _ask_count),
    "lists": (_step_things, _ask_list),
    "negation": (_step_negation, _ask_negation),
}


def tell_story(kind: Kind, config: WorldsConfig, rng: random.Random) -> Story:
    """One story of a kind; the world goes on until every question of it has been asked."""
    step, ask = _PLOTS[kind]
    while True:
        world = _World(config, rng)
        length = rng.randint(*config.facts)
        times = set(rng.sample(range(2, length + 1), min(config.questions - 1, length - 2))) | {length}
        questions: list[Question] = []
        while len(world.facts) < length:
            step(world)
            asked = ask(world) if len(world.facts) in times else None
            if asked is not None:
                text, answer, support = asked
                questions.append(Question(text, split_words(text), answer, len(world.facts), support, kind))
        if questions:
            return Story(tuple(Fact.from_text(text) for text in world.facts), tuple(questions), kind)


def tell_stories(config: WorldsConfig, seed: int) -> list[Story]:
    """`config.stories` stories, the kinds taking turns; the same seed tells the same stories."""
    rng = random.Random(seed)
    return [tell_story(config.kinds[n % len(config.kinds)], config, rng) for n in range(config.stories)]
