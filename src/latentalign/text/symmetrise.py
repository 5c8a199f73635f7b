"""From probabilities to links: decoding one direction, and combining the links of two."""

from collections.abc import Callable

import numpy as np

from latentalign.errors import UserError
from latentalign.text.links import Link


def intersection(forward: frozenset[Link], backward: frozenset[Link]) -> frozenset[Link]:
    """Links that both directions have."""
    return forward & backward


def union(forward: frozenset[Link], backward: frozenset[Link]) -> frozenset[Link]:
    """Links that either direction has."""
    return forward | backward


_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def grow_diag_final_and(forward: frozenset[Link], backward: frozenset[Link]) -> frozenset[Link]:
    """Grow the intersection through neighbours (diagonal ones too) in the union, then add free pairs.

    A neighbour is taken if it gives a word its first link; the last step takes links of either direction
    between two words that are both still without any.
    """
    links = set(forward & backward)
    either = forward | backward
    sources, targets = {i for i, _ in links}, {j for _, j in links}

    def add(link: Link) -> None:
        links.add(link)
        sources.add(link[0])
        targets.add(link[1])

    grown = True
    while grown:
        grown = False
        for i, j in sorted(links):
            for di, dj in _NEIGHBOURS:
                near = (i + di, j + dj)
                if (
                    near in either
                    and near not in links
                    and (near[0] not in sources or near[1] not in targets)
                ):
                    add(near)
                    grown = True
    for direction in (forward, backward):
        for i, j in sorted(direction):
            if i not in sources and j not in targets:
                add((i, j))
    return frozenset(links)


# How likely a link is when the two directions give it p and r. The intersection asks for both, the union for
# either (as if they were independent); grown links lie between, and so does the mean.
SYMMETRISATIONS: dict[
    str,
    tuple[Callable[[frozenset[Link], frozenset[Link]], frozenset[Link]], Callable[[float, float], float]],
] = {
    "intersection": (intersection, lambda p, r: p * r),
    "union": (union, lambda p, r: p + r - p * r),
    "grow-diag-final-and": (grow_diag_final_and, lambda p, r: (p + r) / 2),
}


def symmetrisation(
    name: str,
) -> tuple[Callable[[frozenset[Link], frozenset[Link]], frozenset[Link]], Callable[[float, float], float]]:
    """How to combine two link sets, and the probabilities of a link, by name."""
    if name not in SYMMETRISATIONS:
        raise UserError(f"symmetrise: expected one of {', '.join(SYMMETRISATIONS)}, got {name!r}")
    return SYMMETRISATIONS[name]


def decode_links(probs: np.ndarray, *, threshold: float | None = None) -> dict[Link, float]:
    """Links (source word, target word) with their probabilities.

    Arg-max: every target word gets its likeliest source word, unless no word at all is likelier still. With a
    threshold: every link of at least that probability.
    """
    if threshold is not None:
        rows, columns = np.nonzero(probs >= threshold)
    elif probs.size:
        rows = np.flatnonzero(probs.max(axis=1) >= 1.0 - probs.sum(axis=1))
        columns = probs.argmax(axis=1)[rows]
    else:
        return {}
    return dict(
        zip(zip(columns.tolist(), rows.tolist(), strict=True), probs[rows, columns].tolist(), strict=True)
    )


def symmetrise(
    forward: np.ndarray, backward: np.ndarray, method: str, *, threshold: float | None = None
) -> dict[Link, float]:
    """Links of two directions combined: `forward` is [target, source] words, `backward` [source, target]."""
    combine_links, combine_probs = symmetrisation(method)
    one = decode_links(forward, threshold=threshold)
    other = {(i, j): p for (j, i), p in decode_links(backward, threshold=threshold).items()}
    links = combine_links(frozenset(one), frozenset(other))
    return {(i, j): combine_probs(float(forward[j, i]), float(backward[i, j])) for i, j in sorted(links)}
