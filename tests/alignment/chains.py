"""Small random chains with outputs, as tensors for the library and as plain lists for the oracles."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from latentalign.alignment import (
    AlignmentProblem,
    Bound,
    Categorical,
    Chain,
    DiscreteLatent,
    MatrixTransitions,
    Objective,
    TableLikelihood,
)
from tests import oracles
from tests.alignment.problems import nest
from tests.chain_oracles import PlainChain

DOUBLE = torch.float64
EXACT = {"rtol": 1e-9, "atol": 1e-11}
LEAVES = ("scores", "jumps", "log_f", "posterior_scores", "posterior_jumps")


def close(found: Tensor, expected: Any, **tolerance: float) -> None:
    torch.testing.assert_close(
        found.detach().double(), torch.tensor(expected, dtype=DOUBLE), **(tolerance or EXACT)
    )


@dataclass
class ChainProblem:
    """A chain as prior, a chain as posterior and a table of log f; examples of different sizes are padded."""

    scores: Tensor  # [B,T,S]
    jumps: Tensor  # [S,S]
    log_f: Tensor  # [B,T,S]
    posterior_scores: Tensor  # [B,T,S]
    posterior_jumps: Tensor  # [S,S]
    mask: Tensor  # [B,S]
    steps: Tensor  # [B,T]

    def prior(self, **options: Any) -> Chain:
        return self._chain(self.scores, self.jumps, **options)

    def posterior(self) -> Chain:
        return self._chain(self.posterior_scores, self.posterior_jumps)

    def factorised(self) -> Categorical:
        return Categorical.from_scores(self.posterior_scores, self.mask)

    def _chain(self, scores: Tensor, jumps: Tensor, **options: Any) -> Chain:
        return Chain.from_scores(
            scores, self.mask, transitions=MatrixTransitions(jumps, **options), steps=self.steps
        )

    def likelihood(self) -> TableLikelihood:
        return TableLikelihood(self.log_f)

    def bound(self, objective: Objective, q: DiscreteLatent | None = None, **options: Any) -> Bound:
        posterior = (q or self.posterior()) if objective.needs_posterior else None
        problem = AlignmentProblem(self.prior(), self.likelihood(), self.steps, posterior)
        return objective(problem, **options)

    def gradients(self, value: Tensor) -> dict[str, Tensor]:
        leaves = [getattr(self, name) for name in LEAVES]
        slopes = torch.autograd.grad(
            value, leaves, allow_unused=True, materialize_grads=True, retain_graph=True
        )
        return dict(zip(LEAVES, slopes, strict=True))

    def sizes(self, b: int) -> tuple[int, int]:
        """Real steps and positions of example b."""
        return int(self.steps[b].sum()), int(self.mask[b].sum())

    def one(self, b: int) -> "ChainProblem":
        """Example b alone, without padding."""
        count, size = self.sizes(b)
        cut = {
            name: getattr(self, name)[b : b + 1, :count, :size]
            for name in ("scores", "log_f", "posterior_scores")
        }
        jumps = {name: getattr(self, name)[:size, :size] for name in ("jumps", "posterior_jumps")}
        return ChainProblem(
            **cut, **jumps, mask=self.mask[b : b + 1, :size], steps=self.steps[b : b + 1, :count]
        )

    def plain(self) -> list["PlainProblem"]:
        return [PlainProblem.of(self.one(b)) for b in range(len(self.mask))]


@dataclass
class PlainProblem:
    """One example as nested lists."""

    scores: Any
    jumps: Any
    log_f: Any
    posterior_scores: Any
    posterior_jumps: Any

    @classmethod
    def of(cls, problem: ChainProblem) -> "PlainProblem":
        alone = {name: getattr(problem, name) for name in LEAVES}
        return cls(**{name: (leaf[0] if leaf.dim() == 3 else leaf).tolist() for name, leaf in alone.items()})

    @property
    def prior(self) -> PlainChain:
        return PlainChain(self.scores, self.jumps)

    @property
    def posterior(self) -> PlainChain:
        return PlainChain(self.posterior_scores, self.posterior_jumps)

    def factorised(self) -> list[list[oracles.Number]]:
        return [oracles.softmax(row) for row in self.posterior_scores]

    def gradients(self, function) -> dict[str, Tensor]:
        """Gradient of function(problem) in every leaf, by complex steps."""
        found = {}
        for name in LEAVES:
            leaf = torch.tensor(getattr(self, name), dtype=DOUBLE)

            def at(point, name=name, shape=leaf.shape):
                return function(replace(self, **{name: nest(point, list(shape))}))

            found[name] = torch.tensor(oracles.gradient(at, leaf.flatten().tolist()), dtype=DOUBLE).view(
                leaf.shape
            )
        return found


def make(
    seed: int = 0, *, sizes: tuple[tuple[int, int], ...] = ((3, 3), (2, 2), (3, 2)), spread: float = 1.0
) -> ChainProblem:
    """One example for each (steps, positions)."""
    generator = torch.Generator().manual_seed(seed)
    count, size = (max(pair[axis] for pair in sizes) for axis in (0, 1))

    def normal(*shape: int) -> Tensor:
        return (spread * torch.randn(*shape, generator=generator, dtype=DOUBLE)).requires_grad_()

    batch = len(sizes)
    return ChainProblem(
        scores=normal(batch, count, size),
        jumps=normal(size, size),
        log_f=normal(batch, count, size),
        posterior_scores=normal(batch, count, size),
        posterior_jumps=normal(size, size),
        mask=torch.arange(size) < torch.tensor([s for _, s in sizes])[:, None],
        steps=torch.arange(count) < torch.tensor([t for t, _ in sizes])[:, None],
    )


def padded_sum(parts: list[Tensor], shape: torch.Size) -> Tensor:
    """Gradients of single examples put where they belong in the batch: [B,T,S] or summed [S,S]."""
    total = torch.zeros(shape, dtype=DOUBLE)
    for b, part in enumerate(parts):
        place = total[b] if len(shape) == 3 else total
        place[: part.shape[0], : part.shape[1]] += part
    return total


def assert_same_gradients(problem: ChainProblem, found: dict[str, Tensor], function) -> None:
    """The gradients of Σ_b function(example b)."""
    plain = [example.gradients(function) for example in problem.plain()]
    for name in LEAVES:
        expected = padded_sum([part[name] for part in plain], found[name].shape)
        torch.testing.assert_close(
            found[name], expected, msg=lambda text, name=name: f"{name}: {text}", **EXACT
        )
