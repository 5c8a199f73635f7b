"""Batches out of an order of examples: one home for every task."""

from collections.abc import Iterable, Sequence


def cut(
    order: Iterable[int],
    *,
    examples: int | None = None,
    lengths: Sequence[int] | None = None,
    padded: int | None = None,
) -> list[list[int]]:
    """Consecutive batches of at most `examples`, and of at most `padded` positions at these lengths.

    A batch is padded to its longest example. An example that is too long by itself has a batch of its own. Sort the
    order by length first, so that little is padded.

    Example:
        >>> cut([2, 0, 1], lengths=[4, 5, 1], padded=8)
        [[2, 0], [1]]
    """
    batches: list[list[int]] = []
    batch: list[int] = []
    longest = 0
    for number in order:
        length = 0 if lengths is None else int(lengths[number])
        full = examples is not None and len(batch) == examples
        wide = padded is not None and max(longest, length) * (len(batch) + 1) > padded
        if batch and (full or wide):
            batches.append(batch)
            batch, longest = [], 0
        batch.append(number)
        longest = max(longest, length)
    return [*batches, batch] if batch else batches
