"""Prior against posterior, and soft attention against the variational prior, where they differ most."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from latentalign.files import read_lines
from latentalign.reports.figures.heatmap import heatmap, save
from latentalign.text.aligned_pair import with_null_word
from latentalign.training.trained_run import Run
from latentalign.translation.align import PairAlignment, TranslationAligner

SHORTEST, LONGEST = 6, 16  # words a side: what a picture can show
SHOWN = 3
RULE = (
    f"Of all test pairs with {SHORTEST} to {LONGEST} words on either side, those whose two alignments differ most: "
    "largest mean Jensen–Shannon divergence over target words, in nats, where the null word counts as a "
    "position of its own."
)


@dataclass(frozen=True)
class Contrast:
    """Two distributions of the same pairs that are compared."""

    name: str  # of the files
    panels: tuple[str, str]
    matrices: Callable[[int], tuple[np.ndarray, np.ndarray]]  # of a pair, [target words, source words]


def divergence(one: np.ndarray, other: np.ndarray) -> float:
    """Mean Jensen–Shannon divergence of the rows of two alignments [target words, source words], in nats."""
    one, other = _completed(one), _completed(other)
    middle = (one + other) / 2
    return float((0.5 * _relative_entropy(one, middle) + 0.5 * _relative_entropy(other, middle)).mean())


def _completed(probs: np.ndarray) -> np.ndarray:
    """Rows that sum to 1, the null word included."""
    whole = with_null_word(np.clip(probs, 0.0, 1.0))
    completed: np.ndarray = whole / whole.sum(axis=1, keepdims=True)
    return completed


def _relative_entropy(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    ratio = np.divide(one, other, out=np.ones_like(one), where=one > 0)
    total: np.ndarray = (one * np.log(ratio)).sum(axis=1)
    return total


def largest(values: Sequence[float | None], count: int) -> list[int]:
    """Numbers of the largest values, largest first; the earlier of two equal ones first."""
    known = [(value, number) for number, value in enumerate(values) if value is not None]
    return [number for _, number in sorted(known, key=lambda item: (-item[0], item[1]))[:count]]


def draw_figure3(
    soft: Run, variational: Run, *, source: Path, target: Path, out: Path, shown: int = SHOWN
) -> list[dict[str, Any]]:
    """Write the pictures; a record for each, by the line of the test set and not by its text."""
    pairs = list(zip(read_lines(source), read_lines(target), strict=True))
    ours = list(TranslationAligner(variational.model, variational.assets).align(pairs))
    theirs = list(TranslationAligner(soft.model, soft.assets).align(pairs))
    contrasts = (
        Contrast("posterior", ("prior", "posterior"), lambda n: (ours[n].prior, _posterior(ours[n]))),
        Contrast("soft", ("soft attention", "variational prior"), lambda n: (theirs[n].prior, ours[n].prior)),
    )
    records = []
    for contrast in contrasts:
        differences = [
            divergence(*contrast.matrices(number)) if _fits(pair) else None
            for number, pair in enumerate(ours)
        ]
        mean = float(np.mean([value for value in differences if value is not None] or [0.0]))
        for rank, number in enumerate(largest(differences, shown), start=1):
            picture = f"figure3-{contrast.name}-{rank}.png"
            panels = dict(zip(contrast.panels, contrast.matrices(number), strict=True))
            save(heatmap(panels, ours[number].source_words, ours[number].target_words), out / picture)
            records.append(
                {
                    "contrast": " against ".join(contrast.panels),
                    "rank": rank,
                    "line": number + 1,
                    "divergence": round(float(differences[number] or 0.0), 4),
                    "mean_divergence": round(mean, 4),
                    "picture": picture,
                }
            )
    return records


def _posterior(pair: PairAlignment) -> np.ndarray:
    assert pair.posterior is not None
    return pair.posterior


def _fits(pair: PairAlignment) -> bool:
    return all(SHORTEST <= len(words) <= LONGEST for words in (pair.source_words, pair.target_words))
