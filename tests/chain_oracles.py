"""Brute force for chains: every path by plain loops over Python numbers, no torch, nothing of latentalign.

One example at a time. `scores` and `log_f` are lists [T][S], `jumps` a matrix [S][S] with None where a step is
forbidden. A path is a tuple of T positions; with a null state an output that comes from nowhere is −1, and the
position before it is remembered. Complex numbers are accepted: derivatives are taken by complex steps (see
`tests/oracles.py`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.oracles import Number, exp, log, total

Path = tuple[int, ...]


@dataclass
class PlainChain:
    """p(z_1..z_T) = Π_t softmax_i(scores_t(i) + jumps(z_{t−1}, i)), over the positions that are real."""

    scores: Sequence[Sequence[Number]]  # [T][S]
    jumps: Sequence[Sequence[Number | None]]  # [S][S]
    mask: Sequence[Sequence[bool]] | None = None  # [T][S]
    start: Sequence[Number] | None = None  # [S]
    null: float = 0.0

    @property
    def size(self) -> int:
        return len(self.scores[0])

    def row(self, t: int, before: int | None) -> list[Number]:
        """Probabilities of the positions at step t after position `before` (None: nowhere yet)."""
        powers: list[Number] = []
        for i in range(self.size):
            jump = (self.start[i] if self.start else 0.0) if before is None else self.jumps[before][i]
            real = self.mask is None or self.mask[t][i]
            powers.append(exp(self.scores[t][i] + jump) if real and jump is not None else 0.0)
        mass = total(powers)
        return [power / mass if complex(mass).real > 0 else 0.0 for power in powers]

    def paths(self, steps: int) -> Iterator[tuple[Path, Number]]:
        """Every path of so many steps that is possible, with its probability."""

        def extend(path: Path, before: int | None, chance: Number) -> Iterator[tuple[Path, Number]]:
            if len(path) == steps:
                yield path, chance
                return
            for i, share in enumerate(self.row(len(path), before)):
                if complex(share).real > 0:
                    yield from extend((*path, i), i, chance * (1 - self.null) * share)
            if self.null > 0:
                yield from extend((*path, -1), before, chance * self.null)

        return extend((), None, 1.0)

    def log_prob(self, path: Path) -> list[Number]:
        """log p(z_t | z_<t) of every step."""
        found, before = [], None
        for t, i in enumerate(path):
            found.append(log(self.row(t, before)[i]))
            before = i
        return found


def outputs(path: Path, log_f: Sequence[Sequence[Number]], null: Sequence[Number] | None = None) -> Number:
    """log f of the outputs along a path."""
    return total([log_f[t][i] if i >= 0 else null[t] for t, i in enumerate(path)])


def evidence(chain: PlainChain, log_f, steps: int, null=None) -> Number:
    """log p(y_1..y_steps)."""
    return log(total([chance * exp(outputs(path, log_f, null)) for path, chance in chain.paths(steps)]))


def increments(chain: PlainChain, log_f, null=None) -> list[Number]:
    """log p(y_t | y_<t) of every step."""
    totals = [evidence(chain, log_f, t, null) for t in range(1, len(log_f) + 1)]
    return [now - before for now, before in zip(totals, [0.0, *totals[:-1]], strict=True)]


def posterior(chain: PlainChain, log_f, null=None) -> dict[Path, Number]:
    """p(z | y) of every path."""
    joint = {path: chance * exp(outputs(path, log_f, null)) for path, chance in chain.paths(len(log_f))}
    mass = total(list(joint.values()))
    return {path: value / mass for path, value in joint.items()}


def law(chain: PlainChain) -> dict[Path, Number]:
    """p(z) of every path."""
    return dict(chain.paths(len(chain.scores)))


def marginals(distribution: dict[Path, Number], size: int) -> list[list[Number]]:
    """p(z_t = i), [T][S]; outputs from nowhere count for none."""
    steps = len(next(iter(distribution)))
    found: list[list[Number]] = [[0.0] * size for _ in range(steps)]
    for path, chance in distribution.items():
        for t, i in enumerate(path):
            if i >= 0:
                found[t][i] = found[t][i] + chance
    return found


def pairs(distribution: dict[Path, Number], size: int) -> list[list[list[Number]]]:
    """p(z_{t−1} = k, z_t = i), [T][S][S], 0 at the first step; the position before is the one remembered."""
    steps = len(next(iter(distribution)))
    found: list[list[list[Number]]] = [[[0.0] * size for _ in range(size)] for _ in range(steps)]
    for path, chance in distribution.items():
        before = None
        for t, i in enumerate(path):
            if i >= 0:
                if before is not None:
                    found[t][before][i] = found[t][before][i] + chance
                before = i
    return found


def entropy(distribution: dict[Path, Number]) -> Number:
    return -total([p * log(p) for p in distribution.values()])


def kl(q: dict[Path, Number], p: dict[Path, Number]) -> Number:
    return total([share * (log(share) - log(p[path])) for path, share in q.items()])


def expected(q: dict[Path, Number], log_f) -> Number:
    return total([share * outputs(path, log_f) for path, share in q.items()])


def independent(probs: Sequence[Sequence[Number]]) -> dict[Path, Number]:
    """The law of independent steps with probabilities [T][S]."""
    found: dict[Path, Number] = {(): 1.0}
    for row in probs:
        found = {
            (*path, i): chance * p
            for path, chance in found.items()
            for i, p in enumerate(row)
            if complex(p).real > 0
        }
    return found
