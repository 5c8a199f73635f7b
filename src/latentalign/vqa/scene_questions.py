"""Questions about a generated scene, the region that answers each, and ten people who do not quite agree."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, combinations

import numpy as np

from latentalign.vqa.answers import normalise_answer
from latentalign.vqa.scenes import COLOURS, KINDS, Scene, Shape

PEOPLE = 10
_DIRECTIONS = {"left of": (0, -1), "right of": (0, 1), "above": (-1, 0), "below": (1, 0)}
# what people mix up: neighbours on the colour wheel or of a like outline
_CONFUSED = {
    "red": "purple", "yellow": "green", "green": "blue", "blue": "purple", "purple": "blue", "black": "blue",
    "circle": "square", "square": "circle", "triangle": "cross", "cross": "square",
    "small": "large", "large": "small", "yes": "no", "no": "yes",
}  # fmt: skip
_SPELLINGS: list[Callable[[str], str]] = [
    str,
    str.capitalize,
    lambda word: f"{word}.",
    lambda word: f"a {word}" if word in KINDS else word,
    lambda word: f"the {word}" if word in COLOURS else word,
]


@dataclass(frozen=True)
class SceneQuestion:
    """A question with its true answer; `regions` are the boxes that show the answer."""

    text: str
    kind: str
    answer: str
    regions: tuple[int, ...]


def ask_questions(scene: Scene, count: int, rng: np.random.Generator) -> list[SceneQuestion]:
    """Up to `count` different questions; about half need a relation between two shapes."""
    questions: dict[str, SceneQuestion] = {}
    for _ in range(8 * count):
        if len(questions) == count:
            break
        ask = _ask_relation if rng.random() < 0.7 else _ask_one
        question = ask(scene, rng)
        if question is not None:
            questions.setdefault(question.text, question)
    return list(questions.values())


def _ask_one(scene: Scene, rng: np.random.Generator) -> SceneQuestion | None:
    """A question about one shape, named by attributes other than the one asked for."""
    number = int(rng.integers(len(scene.shapes)))
    shape = scene.shapes[number]
    asked = str(rng.choice(["colour", "kind", "size", "check"], p=[0.3, 0.3, 0.1, 0.3]))
    hidden = "colour" if asked == "check" else asked
    name = _name(scene, number, {"kind", "colour", "size"} - {hidden}, rng)
    region = scene.region_of(number)
    if name is None or region is None:
        return None
    if asked == "check":
        colour = (
            shape.colour if rng.random() < 0.5 else str(rng.choice([c for c in COLOURS if c != shape.colour]))
        )
        return SceneQuestion(
            f"is the {name} {colour}?", "is the", "yes" if colour == shape.colour else "no", (region,)
        )
    word = {"kind": "shape"}.get(asked, asked)
    name = name.replace("shape", "thing") if asked == "kind" else name
    return SceneQuestion(
        f"what {word} is the {name}?", f"what {word} is the", shape.attribute(asked), (region,)
    )


def _ask_relation(scene: Scene, rng: np.random.Generator) -> SceneQuestion | None:
    """A question about the only shape in some direction of another; the box around both shows it."""
    reference = int(rng.integers(len(scene.shapes)))
    direction = str(rng.choice(list(_DIRECTIONS)))
    beyond = [n for n, shape in enumerate(scene.shapes) if _lies(shape, direction, scene.shapes[reference])]
    if len(beyond) != 1:
        return None
    target = beyond[0]
    pair = scene.region_of(reference, target)
    own = scene.region_of(target)
    name = _name(scene, reference, {"kind", "colour", "size"}, rng)
    if pair is None or own is None or name is None:
        return None
    asked = str(rng.choice(["colour", "kind"]))
    start = "what colour is the shape" if asked == "colour" else "which shape is"
    answer = scene.shapes[target].attribute(asked)
    return SceneQuestion(f"{start} {direction} the {name}?", start, answer, (pair, own))


def _lies(shape: Shape, direction: str, reference: Shape) -> bool:
    """Whether a shape is in this direction of another, in the same row or column."""
    down, right = _DIRECTIONS[direction]
    rows, columns = shape.row - reference.row, shape.column - reference.column
    if down:
        return columns == 0 and rows * down > 0
    return rows == 0 and columns * right > 0


def _name(scene: Scene, number: int, allowed: set[str], rng: np.random.Generator) -> str | None:
    """Words that fit one shape of the scene only: "small red square", "red shape"; None if there are none."""
    order = [attribute for attribute in ("size", "colour", "kind") if attribute in allowed]
    subsets = list(chain.from_iterable(combinations(order, size) for size in range(1, len(order) + 1)))
    shape = scene.shapes[number]
    fitting = []
    for subset in subsets:
        same = [all(s.attribute(a) == shape.attribute(a) for a in subset) for s in scene.shapes]
        if sum(same) == 1:
            fitting.append(subset)
    if not fitting:
        return None
    chosen = fitting[int(rng.integers(len(fitting)))]
    words = [shape.attribute(attribute) for attribute in chosen]
    return " ".join(words if "kind" in chosen else [*words, "shape"])


def simulate_answers(question: SceneQuestion, rng: np.random.Generator) -> list[str]:
    """What ten people say: mostly the truth, in different spellings, less so where the question is harder."""
    doubt = rng.beta(1.5, 9.0)
    answers = []
    for _ in range(PEOPLE):
        word = question.answer
        if rng.random() < doubt:
            word = _CONFUSED[word] if rng.random() < 0.8 else "unclear"
        spelling = _SPELLINGS[int(rng.integers(len(_SPELLINGS)))] if rng.random() < 0.15 else str
        answers.append(spelling(word))
    return answers


def main_answer(answers: list[str]) -> str:
    """The commonest answer after normalisation."""
    return Counter(normalise_answer(answer) for answer in answers).most_common(1)[0][0]
