"""Wrong shapes, empty mask rows and scores that are no numbers: each is refused with an explanation."""

import math

import pytest
import torch

from latentalign.alignment import (
    AlignmentProblem,
    Categorical,
    ContextLikelihood,
    Dirichlet,
    Elbo,
    Exact,
    Hard,
    LogisticNormal,
    Marginal,
    NonFiniteError,
    Reinforce,
    RunningMean,
    Sampled,
    ShapeError,
    Soft,
    TableLikelihood,
    Vimco,
    build_score,
    external_posterior,
)
from tests.alignment import problems
from tests.alignment.mistakes import Mistake, assert_explained

PROBLEM = problems.make(0, lengths=(3, 2), steps=2)
PRIOR, F = PROBLEM.prior(), PROBLEM.likelihood()
TABLE = TableLikelihood(torch.zeros(2, 2, 3, dtype=torch.float64))
ZEROS = torch.zeros(2, 2, 3)
OTHER_MEMORY = ["prior", "[2, 2, 3]", "[2, 2, 4]", "same memory"]


def wide() -> Categorical:
    """A prior over one position more than the likelihood has."""
    return Categorical.from_scores(torch.zeros(2, 2, 4, dtype=torch.float64))


def filled(value: float) -> torch.Tensor:
    scores = torch.zeros(2, 2, 3)
    scores[1, 0, 2] = value
    return scores


def empty_row() -> torch.Tensor:
    return torch.tensor([[True, True, True], [False, False, False]])


def likelihood(
    values: torch.Tensor, queries: torch.Tensor, targets: torch.Tensor | None
) -> ContextLikelihood:
    return ContextLikelihood(lambda context, query: context + query, values, queries, targets)


MISTAKES: dict[str, Mistake] = {
    "scores of two axes": (
        lambda: Categorical.from_scores(ZEROS[0]),
        ShapeError,
        ["scores", "[B,T,S]", "[2, 3]"],
    ),
    "Dirichlet scores": (
        lambda: Dirichlet.from_scores(ZEROS[0]),
        ShapeError,
        ["scores", "[B,T,S]", "[2, 3]"],
    ),
    "logistic-normal scores": (
        lambda: LogisticNormal.from_scores(ZEROS[0]),
        ShapeError,
        ["scores", "[B,T,S]", "[2, 3]"],
    ),
    "probs of two axes": (
        lambda: Categorical.from_probs(ZEROS[0]),
        ShapeError,
        ["probs", "[B,T,S]", "[2, 3]"],
    ),
    "links of two axes": (lambda: external_posterior(ZEROS[0]), ShapeError, ["links", "[B,T,S]", "[2, 3]"]),
    "mask too long": (
        lambda: Categorical.from_scores(ZEROS, torch.ones(2, 4, dtype=torch.bool)),
        ShapeError,
        ["mask", "[B,S]", "S=3", "[2, 4]", "S axis"],
    ),
    "mask of one axis": (
        lambda: Categorical.from_scores(ZEROS, torch.ones(3, dtype=torch.bool)),
        ShapeError,
        ["mask", "[B,T,S]", "[3]"],
    ),
    "mask of numbers": (
        lambda: Categorical.from_scores(ZEROS, torch.ones(2, 3)),
        ShapeError,
        ["mask", "bool", "torch.float32", "mask.bool()"],
    ),
    "empty row": (
        lambda: Categorical.from_scores(ZEROS, empty_row()),
        ShapeError,
        ["mask", "at least one real position", "[1, 0]", "drop that example"],
    ),
    "empty row, Dirichlet": (
        lambda: Dirichlet.from_scores(ZEROS, empty_row()),
        ShapeError,
        ["mask", "at least one real position", "[1, 0]"],
    ),
    "queries of another batch": (
        lambda: likelihood(torch.zeros(2, 3, 4), torch.zeros(3, 2, 4), None),
        ShapeError,
        ["queries", "B=2 as in values", "[3, 2, 4]"],
    ),
    "targets of other steps": (
        lambda: likelihood(torch.zeros(2, 3, 4), torch.zeros(2, 5, 4), torch.zeros(2, 4)),
        ShapeError,
        ["targets", "[B,T]", "T=5", "[2, 4]"],
    ),
    "mixture of another size": (
        lambda: F.mixture(torch.ones(2, 2, 4, dtype=torch.float64)),
        ShapeError,
        ["z", "S=3", "[2, 2, 4]"],
    ),
    "soft over another memory": (lambda: Soft()(AlignmentProblem(wide(), F)), ShapeError, OTHER_MEMORY),
    "enumeration over another memory": (
        lambda: Marginal()(AlignmentProblem(wide(), F)),
        ShapeError,
        OTHER_MEMORY,
    ),
    "samples from another memory": (
        lambda: Hard(Reinforce(baseline=RunningMean()))(AlignmentProblem(wide(), F)),
        ShapeError,
        OTHER_MEMORY,
    ),
    "importance samples from another memory": (
        lambda: Vimco()(AlignmentProblem(wide(), F, posterior=wide())),
        ShapeError,
        OTHER_MEMORY,
    ),
    "prediction over another memory": (lambda: Exact().log_likelihood(wide(), F), ShapeError, OTHER_MEMORY),
    "sampled prediction over another memory": (
        lambda: Sampled(2).log_probs(wide(), F),
        ShapeError,
        OTHER_MEMORY,
    ),
    "table of another size": (lambda: Marginal()(AlignmentProblem(wide(), TABLE)), ShapeError, OTHER_MEMORY),
    "table of two axes": (lambda: TableLikelihood(ZEROS[0]), ShapeError, ["table", "[B,T,S]", "[2, 3]"]),
    "posterior of another size": (
        lambda: Elbo()(AlignmentProblem(PRIOR, F, posterior=wide())),
        ShapeError,
        ["posterior", "[2, 2, 3]", "[2, 2, 4]", "same memory"],
    ),
    "queries of two axes": (
        lambda: build_score("additive", 3, 3, 4)(torch.zeros(2, 3), torch.zeros(2, 5, 3)),
        ShapeError,
        ["queries", "[B,T,Q]", "[2, 3]"],
    ),
    "memory of another batch": (
        lambda: build_score("general", 3, 3, 4)(torch.zeros(2, 1, 3), torch.zeros(4, 5, 3)),
        ShapeError,
        ["memory", "B=2 as in queries", "[4, 5, 3]"],
    ),
}
for _name, _build in {
    "Categorical": Categorical,
    "Dirichlet": Dirichlet,
    "LogisticNormal": LogisticNormal,
}.items():
    for _value in (math.nan, math.inf):
        MISTAKES[f"{_value} in scores of {_name}"] = (
            lambda build=_build, value=_value: build.from_scores(filled(value)),
            NonFiniteError,
            ["scores", "finite", str(_value), "[1, 0, 2]", "upstream"],
        )


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_explained(name: str) -> None:
    assert_explained(MISTAKES[name])
