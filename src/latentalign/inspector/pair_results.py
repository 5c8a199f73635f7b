"""What is asked about the links of pairs, and a pair's answer, by runs and aligners alike."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from latentalign.inspector.schemas import AlignResult, By, Link, Matrices
from latentalign.text.links import format_links


class FoundPair(Protocol):
    """A pair that was aligned."""

    @property
    def source_words(self) -> list[str]: ...

    @property
    def target_words(self) -> list[str]: ...

    @property
    def score(self) -> float | None: ...


@dataclass(frozen=True)
class LinksAsked:
    """Which links, and what else about them."""

    by: By
    exact: bool  # whether the exact posterior is needed
    scores: bool
    matrices: bool
    threshold: float | None

    def result(
        self, found: FoundPair, links: dict[tuple[int, int], float], matrices: Callable[[], Matrices]
    ) -> AlignResult:
        return AlignResult(
            source_words=found.source_words,
            target_words=found.target_words,
            links=link_list(links),
            pharaoh=format_links(links, probs=links if self.scores else None),
            score=finite(found.score) if self.scores else None,
            matrices=matrices() if self.matrices else None,
        )


def link_list(links: dict[tuple[int, int], float]) -> list[Link]:
    return [Link(source=i, target=j, probability=p) for (i, j), p in sorted(links.items())]


def finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
