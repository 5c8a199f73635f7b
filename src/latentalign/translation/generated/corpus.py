"""A generated German–English-like corpus with gold alignments, the same for the same seed."""

from pathlib import Path
from random import Random
from typing import NamedTuple

from latentalign.files import write_atomic
from latentalign.translation.generated.grammar import Phrase, Writer


class Example(NamedTuple):
    """A sentence pair and its links (source word, target word), counted from 0."""

    source: str
    target: str
    links: tuple[tuple[int, int], ...]


def _finish(sentence: Phrase) -> Example:
    german, english = sentence
    links = tuple(
        (i, j)
        for i, source in enumerate(german)
        for j, target in enumerate(english)
        if source.meanings & target.meanings
    )
    sides = [" ".join(token.word for token in side) for side in (german, english)]
    source, target = (side[0].upper() + side[1:] for side in sides)
    return Example(source, target, links)


def generate(count: int, seed: int) -> list[Example]:
    """That many different sentence pairs."""
    writer = Writer(Random(seed))
    found: dict[str, Example] = {}
    while len(found) < count:
        example = _finish(writer.sentence())
        found.setdefault(example.source, example)
    return list(found.values())


def write_corpus(folder: Path, *, sizes: dict[str, int], seed: int = 1) -> dict[str, list[Example]]:
    """Write splits without a sentence in common as `NAME.de`, `NAME.en` and gold links `NAME.gold` (Pharaoh)."""
    examples = iter(generate(sum(sizes.values()), seed))
    splits = {name: [next(examples) for _ in range(size)] for name, size in sizes.items()}
    for name, split in splits.items():
        write_atomic(folder / f"{name}.de", "".join(f"{example.source}\n" for example in split))
        write_atomic(folder / f"{name}.en", "".join(f"{example.target}\n" for example in split))
        links = (" ".join(f"{i}-{j}" for i, j in example.links) for example in split)
        write_atomic(folder / f"{name}.gold", "".join(f"{line}\n" for line in links))
    return splits
