"""Small random alignment problems, as tensors for the library and as plain lists for the oracles."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from latentalign.alignment import AlignmentProblem, Bound, Categorical, ContextLikelihood, Objective
from tests import oracles
from tests.oracles import Number

LEAVES = ("prior_scores", "posterior_scores", "values", "queries", "weight")


@dataclass
class Problem:
    """Prior and posterior scores with a mask, and the likelihood softmax(W tanh(values + queries))."""

    prior_scores: Tensor  # [B,T,S]
    posterior_scores: Tensor  # [B,T,S]
    values: Tensor  # [B,S,D]
    queries: Tensor  # [B,T,D]
    weight: Tensor  # [V,D]
    targets: Tensor  # [B,T]
    mask: Tensor  # [B,S]

    def prior(self, normalizer: str = "softmax") -> Categorical:
        return Categorical.from_scores(self.prior_scores, self.mask, normalizer=normalizer)

    def posterior(self) -> Categorical:
        return Categorical.from_scores(self.posterior_scores, self.mask)

    def head(self, context: Tensor, query: Tensor) -> Tensor:
        return torch.tanh(context + query) @ self.weight.T

    def likelihood(self, **options: int) -> ContextLikelihood:
        return ContextLikelihood(self.head, self.values, self.queries, self.targets, **options)

    def leaves(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in LEAVES}

    def plain(self) -> "Plain":
        return Plain(**{field.name: getattr(self, field.name).tolist() for field in fields(self)})

    def gradients(self, objective: Tensor) -> dict[str, Tensor]:
        """Gradient of a scalar in every leaf, zero where the scalar does not depend on it."""
        leaves = self.leaves()
        if not objective.requires_grad:
            return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
        slopes = torch.autograd.grad(objective, list(leaves.values()), allow_unused=True, retain_graph=True)
        return {
            name: torch.zeros_like(leaf) if slope is None else slope
            for (name, leaf), slope in zip(leaves.items(), slopes, strict=True)
        }


def make(
    seed: int = 0,
    *,
    lengths: tuple[int, ...] = (3, 2),
    steps: int = 2,
    features: int = 2,
    vocabulary: int = 3,
    spread: float = 1.5,
    dtype: torch.dtype = torch.float64,
) -> Problem:
    """One example for each length; positions beyond it are masked."""
    generator = torch.Generator().manual_seed(seed)
    batch, longest = len(lengths), max(lengths)

    def normal(*shape: int) -> Tensor:
        return (spread * torch.randn(*shape, generator=generator, dtype=dtype)).requires_grad_()

    return Problem(
        prior_scores=normal(batch, steps, longest),
        posterior_scores=normal(batch, steps, longest),
        values=normal(batch, longest, features),
        queries=normal(batch, steps, features),
        weight=normal(vocabulary, features),
        targets=torch.randint(vocabulary, (batch, steps), generator=generator),
        mask=torch.arange(longest) < torch.tensor(lengths)[:, None],
    )


def single(seed: int = 0, *, size: int = 3, **options: Any) -> Problem:
    """One example, one step."""
    return make(seed, lengths=(size,), steps=1, **options)


@dataclass
class Output:
    """What the oracles need to know about one output; probabilities and logs as plain lists."""

    prior: list[Number]
    posterior: list[Number]
    log_f: list[Number]
    soft: Number  # log f(x, E_p[z])


@dataclass
class Plain:
    """A problem as nested lists."""

    prior_scores: Any
    posterior_scores: Any
    values: Any
    queries: Any
    weight: Any
    targets: Any
    mask: Any

    def output(self, b: int, t: int) -> Output:
        prior = oracles.softmax(self.prior_scores[b][t], self.mask[b])
        arguments = (self.values[b], self.queries[b][t], self.weight, self.targets[b][t])
        return Output(
            prior=prior,
            posterior=oracles.softmax(self.posterior_scores[b][t], self.mask[b]),
            log_f=oracles.table(*arguments),
            soft=oracles.log_likelihood(*arguments, prior),
        )

    def each(self, objective: Callable[[Output], Number]) -> list[list[Number]]:
        """The objective of every output, [B][T]."""
        shape = range(len(self.prior_scores)), range(len(self.prior_scores[0]))
        return [[objective(self.output(b, t)) for t in shape[1]] for b in shape[0]]

    def gradients(self, objective: Callable[[Output], Number]) -> dict[str, Tensor]:
        """Gradient of the sum over outputs in every leaf, by complex steps."""
        result = {}
        for name in LEAVES:
            shape = torch.tensor(getattr(self, name)).shape

            def at(point: list[Number], name: str = name, shape: torch.Size = shape) -> Number:
                moved = replace(self, **{name: nest(point, list(shape))})
                return oracles.total([x for row in moved.each(objective) for x in row])

            point = torch.tensor(getattr(self, name), dtype=torch.float64).flatten().tolist()
            slopes = oracles.gradient(at, point)
            result[name] = torch.tensor(slopes, dtype=torch.float64).reshape(shape)
        return result


def evaluate(problem: Problem, objective: Objective, **options: Any) -> Bound:
    posterior = problem.posterior() if objective.needs_posterior else None
    return objective(AlignmentProblem(problem.prior(), problem.likelihood(), posterior=posterior), **options)


def nest(flat: list[Number], shape: list[int]) -> Any:
    if len(shape) == 1:
        return flat
    width = len(flat) // shape[0]
    return [nest(flat[i * width : (i + 1) * width], shape[1:]) for i in range(shape[0])]


def assert_same_gradients(found: dict[str, Tensor], expected: dict[str, Tensor], **tolerance: float) -> None:
    for name in expected:
        torch.testing.assert_close(
            found[name], expected[name], msg=lambda text, name=name: f"{name}: {text}", **(tolerance or EXACT)
        )


EXACT = {"rtol": 1e-9, "atol": 1e-11}
