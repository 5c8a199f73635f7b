"""The text of the measurements: Europarl as others tokenise it, and the pairs that were aligned by hand."""

import re
from dataclasses import dataclass
from pathlib import Path

from latentalign.files import read_lines, write_atomic
from latentalign.text.links import Link, read_links

WORDS = re.compile(r"\w+(?:-\w+)*|'s\b|[^\w\s]")
LONGEST = 60

Pair = tuple[str, str]


@dataclass(frozen=True)
class Corpus:
    """Pairs to learn from, and pairs with gold links. All of it is tokenised and without capitals."""

    pairs: list[Pair]
    dev: list[Pair]
    gold: list[frozenset[Link]]


def read_corpus(folder: Path) -> Corpus:
    pairs = []
    for texts in zip(*(read_lines(folder / f"europarl20k.{side}.gz") for side in ("de", "en")), strict=True):
        source, target = (WORDS.findall(text.casefold()) for text in texts)
        if 1 <= len(source) <= LONGEST and 1 <= len(target) <= LONGEST:
            pairs.append((" ".join(source), " ".join(target)))
    dev = [
        (source.casefold(), target.casefold())
        for source, target in zip(*(read_lines(folder / f"dev.{side}") for side in ("de", "en")), strict=True)
    ]
    return Corpus(pairs, dev, [links.sure for links in read_links(folder / "dev.gold")])


def write_pairs(pairs: list[Pair], folder: Path, name: str) -> tuple[Path, Path]:
    source, target = folder / f"{name}.de", folder / f"{name}.en"
    for side, path in enumerate((source, target)):
        write_atomic(path, "".join(pair[side] + "\n" for pair in pairs))
    return source, target
