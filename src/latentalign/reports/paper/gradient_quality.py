"""How good estimators are: variance and bias of their gradients against the exact one, and how tight bounds are."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from latentalign.alignment.learning.estimators import (
    Enumerate,
    GumbelSoftmax,
    LeaveOneOut,
    NoBaseline,
    Reinforce,
    RunningMean,
    SoftBaseline,
)
from latentalign.alignment.learning.importance import ReweightedWakeSleep, Vimco
from latentalign.alignment.learning.objectives import (
    Elbo,
    Hard,
    Marginal,
    Objective,
    Soft,
    StochasticVI,
    Wake,
)
from latentalign.alignment.learning.problem import AlignmentProblem
from latentalign.alignment.metrics import exact_posterior, log_marginal

REPEATS = 30
WARM_UP = 20  # calls before a running mean is used


@dataclass(frozen=True)
class Comparison:
    """An estimator and the objective whose exact gradient it estimates."""

    target: str
    exact: Objective
    estimator: str
    objective: Objective
    parameters: tuple[str, ...] = ("theta", "phi")


def comparisons() -> list[Comparison]:
    """Estimators of the tables with what they estimate; fresh ones, since a running mean has a state."""
    elbo = {
        "reinforce, no baseline": Reinforce(1, NoBaseline()),
        "reinforce, running mean": Reinforce(1, RunningMean(0.9)),
        "reinforce, soft baseline": Reinforce(1, SoftBaseline()),
        "reinforce, soft baseline, 5 samples": Reinforce(5, SoftBaseline()),
        "reinforce, leave one out, 2 samples": Reinforce(2, LeaveOneOut()),
        "reinforce, leave one out, 5 samples": Reinforce(5, LeaveOneOut()),
        "gumbel, temperature 0.1": GumbelSoftmax(0.1),
        "gumbel, temperature 1": GumbelSoftmax(1.0),
        "enumerate, pruned at 0.01": Enumerate(0.01),
    }
    found = [Comparison("variational", Elbo(), name, Elbo(estimator)) for name, estimator in elbo.items()]
    hard = {"reinforce, soft baseline": Reinforce(1), "reinforce, no baseline": Reinforce(1, NoBaseline())}
    found += [
        Comparison("hard", Hard(), name, Hard(estimator), ("theta",)) for name, estimator in hard.items()
    ]
    found.append(Comparison("wake", Wake(), "rws, 5 samples", ReweightedWakeSleep(5)))
    found.append(Comparison("marginal", Marginal(), "vimco, 5 samples", Vimco(5), ("theta",)))
    found.append(Comparison("marginal", Marginal(), "pruned at 0.01", Marginal(0.01), ("theta",)))
    return found


def gradient_quality(
    model: Any, batch: Any, *, repeats: int = REPEATS, compared: Sequence[Comparison] | None = None
) -> list[dict[str, Any]]:
    """For each estimator and group of parameters, over `repeats` draws on one batch, dropout off.

    `relative_variance` is E‖g − E g‖² / ‖exact‖², `bias` ‖E g − exact‖ / ‖exact‖ (less what the number of draws
    explains, which is `bias_noise`), `cosine` the mean cosine of one draw with the exact gradient.
    """
    model.eval()
    problem = model.problem(batch, with_posterior=True)
    groups = {"theta": list(model.theta()), "phi": list(model.phi())}
    exact: dict[tuple[str, str], Tensor] = {}
    rows = []
    for item in comparisons() if compared is None else compared:
        for group in item.parameters:
            if (item.target, group) not in exact:
                exact[item.target, group] = _gradient(problem, item.exact, groups[group], None)
        _settle(problem, item.objective)
        draws = (
            _gradients(problem, item.objective, [groups[name] for name in item.parameters], seed)
            for seed in range(repeats)
        )
        for group, quality in _quality(draws, [exact[item.target, name] for name in item.parameters], item):
            rows.append({"target": item.target, "estimator": item.estimator, "parameters": group, **quality})
    return rows


def _quality(
    draws: Iterator[list[Tensor]], exact: Sequence[Tensor], item: Comparison
) -> Iterator[tuple[str, dict[str, Any]]]:
    totals = [torch.zeros_like(vector) for vector in exact]
    squares, cosines, count = [0.0] * len(exact), [0.0] * len(exact), 0
    for vectors in draws:
        count += 1
        for number, vector in enumerate(vectors):
            totals[number] += vector
            squares[number] += float(vector @ vector)
            cosines[number] += float(torch.cosine_similarity(vector, exact[number], dim=0))
    for number, group in enumerate(item.parameters):
        # a gradient of zero has no relative error
        size = float(exact[number] @ exact[number]) or float("nan")
        mean = totals[number] / count
        variance = max((squares[number] - count * float(mean @ mean)) / max(count - 1, 1), 0.0)
        distance = mean - exact[number]
        bias = max(float(distance @ distance) - variance / count, 0.0)
        yield (
            group,
            {
                "exact_norm": size**0.5,
                "relative_variance": variance / size,
                "bias": (bias / size) ** 0.5,
                "bias_noise": (variance / count / size) ** 0.5,
                "cosine": cosines[number] / count,
                "draws": count,
            },
        )


def _loss(problem: AlignmentProblem, objective: Objective, seed: int | None) -> Tensor:
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    bound = objective(_fitting(problem, objective), generator=generator)
    weights = problem.weights.to(bound.surrogate.dtype)
    return -(bound.surrogate * weights).sum() / weights.sum()


def _gradients(
    problem: AlignmentProblem, objective: Objective, groups: Sequence[list[nn.Parameter]], seed: int | None
) -> list[Tensor]:
    loss = _loss(problem, objective, seed)
    flat = [parameter for group in groups for parameter in group]
    found = iter(
        torch.autograd.grad(loss, flat, retain_graph=True, allow_unused=True, materialize_grads=True)
    )
    return [torch.cat([next(found).flatten().double() for _ in group]) for group in groups]


def _gradient(
    problem: AlignmentProblem, objective: Objective, parameters: list[nn.Parameter], seed: int | None
) -> Tensor:
    return _gradients(problem, objective, [parameters], seed)[0]


@torch.no_grad()
def _settle(problem: AlignmentProblem, objective: Objective) -> None:
    """Give baselines with a memory something to remember."""
    if any(True for _ in objective.modules()):
        for seed in range(WARM_UP):
            _loss(problem, objective, 10_000 + seed)


def bounds() -> dict[str, Objective]:
    """What is compared with the exact log marginal; soft attention is no bound, and may lie above it."""
    return {
        "soft (no bound)": Soft(),
        "hard (Jensen)": Hard(),
        "variational": Elbo(),
        "importance-weighted, 5 samples": Vimco(5),
        "svi, 10 steps": StochasticVI(10),
        "semi-amortised, 2 steps": StochasticVI(2, start="posterior"),
    }


@torch.no_grad()
def bound_tightness(model: Any, batches: Sequence[Any]) -> list[dict[str, Any]]:
    """Exact log marginal − bound in nats an output, mean over the batches' outputs; dropout off."""
    model.eval()
    gaps: dict[str, float] = {}
    outputs = marginal_total = 0.0
    for number, batch in enumerate(batches):
        problem = model.problem(batch, with_posterior=True)
        weights = problem.weights.double()
        outputs += float(weights.sum())
        exact = log_marginal(problem.prior, problem.likelihood).double()
        marginal_total += float((exact * weights).sum())
        for name, value in _values(problem, seed=number).items():
            gaps[name] = gaps.get(name, 0.0) + float(((exact - value.double()) * weights).sum())
    return [
        {"bound": name, "gap": gap / outputs, "log_marginal": marginal_total / outputs}
        for name, gap in gaps.items()
    ]


def _values(problem: AlignmentProblem, seed: int) -> Mapping[str, Tensor]:
    found = {}
    for name, objective in bounds().items():
        generator = torch.Generator().manual_seed(seed)
        found[name] = objective(_fitting(problem, objective), generator=generator).value
    best = exact_posterior(problem.prior, problem.likelihood)
    found["variational with the exact posterior"] = Elbo()(replace(problem, posterior=best)).value
    return found


def _fitting(problem: AlignmentProblem, objective: Objective) -> AlignmentProblem:
    return problem if objective.needs_posterior else replace(problem, posterior=None)
