"""What is said to have no graph has none."""

from dataclasses import fields

import pytest
import torch
from torch import Tensor

from latentalign.alignment import (
    AlignmentProblem,
    Bound,
    Categorical,
    Chain,
    Dirichlet,
    DiscreteLatent,
    Elbo,
    Enumerate,
    Estimator,
    GaussianContext,
    GumbelSoftmax,
    Latent,
    LogisticNormal,
    MatrixTransitions,
    Normal,
    Reinforce,
    StochasticVI,
    TableLikelihood,
)

SCORES = torch.randn(
    2, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64
).requires_grad_()
ATTENTION = Categorical.from_scores(SCORES)
CHAIN = Chain.from_scores(
    SCORES, transitions=MatrixTransitions(SCORES[0, 0] + SCORES[1, 1, :, None]), start=SCORES[0, 1]
)
LATENTS: dict[str, Latent] = {
    "categorical": ATTENTION,
    "chain": CHAIN,
    "dirichlet": Dirichlet.from_scores(SCORES),
    "logistic normal": LogisticNormal.from_scores(SCORES),
    "normal": Normal(SCORES, SCORES.exp()),
    "context": GaussianContext.around(ATTENTION, SCORES[:, 0, :, None], SCORES[..., :1].exp()),
}


def tensors(thing: object) -> list[Tensor]:
    if isinstance(thing, Tensor):
        return [thing]
    parts = fields(thing) if hasattr(thing, "__dataclass_fields__") else ()  # type: ignore[arg-type]
    return [tensor for part in parts for tensor in tensors(getattr(thing, part.name))]


@pytest.mark.parametrize("name", LATENTS)
def test_a_detached_latent(name: str) -> None:
    latent = LATENTS[name]
    assert any(tensor.requires_grad for tensor in tensors(latent))
    assert not any(tensor.requires_grad for tensor in tensors(latent.detach()))


@pytest.mark.parametrize(
    ("latent", "prune", "impossible"),
    [
        *((ATTENTION, prune, impossible) for prune in (0.0, 0.01) for impossible in (False, True)),
        *((CHAIN, prune, False) for prune in (0.0, 0.01)),
        (CHAIN, 0.0, True),
    ],
)
def test_the_exact_posterior(latent: DiscreteLatent, prune: float, impossible: bool) -> None:
    table = SCORES.log_softmax(dim=-1).masked_fill(torch.tensor(impossible), -torch.inf)
    found = latent.marginalise_pruned(TableLikelihood(table), prune) if prune else latent.marginalise(table)
    assert not any(tensor.requires_grad for tensor in tensors(found.posterior))


@pytest.mark.parametrize(
    "estimator", [Enumerate(), Enumerate(prune=0.1), Reinforce(), GumbelSoftmax()], ids=repr
)
def test_what_many_estimates_share(estimator: Estimator) -> None:
    shared = estimator.prepare(TableLikelihood(SCORES), ATTENTION.support)
    assert shared.with_graph.everywhere(ATTENTION.support).requires_grad
    assert not shared.without_graph.everywhere(ATTENTION.support).requires_grad


def test_what_a_chain_of_free_parameters_begins_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result of SVI is a constant for θ: the transitions of q have no graph, either."""
    seen: list[Latent | None] = []
    bound = Elbo._bound

    def spy(self: Elbo, problem: AlignmentProblem, generator: torch.Generator | None) -> Bound:
        seen.append(problem.posterior)
        return bound(self, problem, generator)

    monkeypatch.setattr(Elbo, "_bound", spy)
    StochasticVI(steps=2)(AlignmentProblem(LATENTS["chain"], TableLikelihood(SCORES)))
    assert len(seen) == 1
    assert not any(tensor.requires_grad for tensor in tensors(seen[0]))
