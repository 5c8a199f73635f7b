"""What has no meaning for a chain is refused in one line that says what to use."""

import math

import pytest
import torch

from latentalign.alignment import (
    Chain,
    ConfigError,
    Elbo,
    GumbelSoftmax,
    Hard,
    MatrixTransitions,
    MonotoneTransitions,
    NonFiniteError,
    Pathwise,
    ShapeError,
    build_distribution,
)
from tests.alignment import chains
from tests.alignment.mistakes import Mistake, assert_explained

PROBLEM = chains.make(0)
ZEROS = torch.zeros(2, 3, 2)
NAN = torch.tensor([[0.0, math.nan], [0.0, 0.0]])
STRICT = MonotoneTransitions(2, stay=False)
FORBIDDEN = torch.full((2, 2), -math.inf)

MISTAKES: dict[str, Mistake] = {
    "a jump width below 1": (
        lambda: build_distribution({"name": "chain", "transitions": "jump", "width": 0}),
        ConfigError,
        ["width", "at least 1", "0", "try 10"],
    ),
    "unknown transitions": (
        lambda: build_distribution({"name": "chain", "transitions": "leaps"}),
        ConfigError,
        ["transitions", "jump, monotone", "leaps", "choose one"],
    ),
    "NaN transitions": (
        lambda: MatrixTransitions(NAN),
        NonFiniteError,
        ["transitions", "finite scores", "NaN", "overflow"],
    ),
    "NaN scores": (
        lambda: Chain.from_scores(ZEROS * math.nan, transitions=MonotoneTransitions(2)),
        NonFiniteError,
        ["scores", "finite"],
    ),
    "no samples": (
        lambda: Chain.from_scores(ZEROS, transitions=MonotoneTransitions(2)).sample(0),
        ConfigError,
        ["samples", "at least 1", "0"],
    ),
    "a matrix that is not square": (
        lambda: MatrixTransitions(torch.zeros(2, 3)),
        ShapeError,
        ["transitions", "[S,S]", "[2, 3]"],
    ),
    "transitions of another memory": (
        lambda: Chain.from_scores(ZEROS, transitions=MonotoneTransitions(3)),
        ShapeError,
        ["transitions", "2 positions", "received 3"],
    ),
    "more steps than a strict order allows": (
        lambda: Chain.from_scores(ZEROS, transitions=STRICT),
        ConfigError,
        ["transitions", "at least one path", "example 0", "step 2", "staying"],
    ),
    "transitions that forbid every path": (
        lambda: Chain.from_scores(ZEROS, transitions=MatrixTransitions(FORBIDDEN)),
        ConfigError,
        ["transitions", "at least one path", "example 0", "step 1"],
    ),
    "a row where the order leaves no path": (
        lambda: Chain.from_scores(
            ZEROS,
            torch.tensor([[[True, True]] * 3, [[False, True], [True, False], [True, True]]]),
            transitions=MonotoneTransitions(2),
        ),
        ConfigError,
        ["transitions", "none for example 1", "step 1"],
    ),
    "more steps than the mask over steps allows": (
        lambda: Chain.from_scores(ZEROS, transitions=MonotoneTransitions(2), steps=torch.ones(2, 2).bool()),
        ShapeError,
        ["steps", "[B,T]", "T=3", "[2, 2]"],
    ),
    "steps with a hole": (
        lambda: Chain.from_scores(
            ZEROS, transitions=MonotoneTransitions(2), steps=torch.tensor([[True, False, True]] * 2)
        ),
        ShapeError,
        ["steps", "real steps first", "another order", "no holes"],
    ),
    "gumbel on a chain": (
        lambda: PROBLEM.bound(Elbo(GumbelSoftmax())),
        ConfigError,
        ["estimator: gumbel", "independent steps", "Chain", "enumerate or reinforce"],
    ),
    "pathwise on a chain": (
        lambda: PROBLEM.bound(Hard(Pathwise())),
        ConfigError,
        ["estimator: pathwise", "continuous", "Chain", "enumerate"],
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_explained(name: str) -> None:
    assert_explained(MISTAKES[name])


def test_outputs_that_no_path_can_give_are_named() -> None:
    chain = Chain.from_scores(torch.zeros(1, 2, 2), transitions=MonotoneTransitions(2))
    log_f = torch.tensor([[[-math.inf, 0.0], [0.0, -math.inf]]])
    with pytest.raises(NonFiniteError, match=r"chain: expected a path .* example 0 at step 1; .*log f"):
        chain.marginalise(log_f)
    # an output that no position at all can give has probability 0 and no gradient
    log_f = torch.tensor([[[0.0, 0.0], [-math.inf, -math.inf]]], requires_grad=True)
    found = chain.marginalise(log_f)
    assert found.value.tolist() == [[0.0, -math.inf]]
    (slope,) = torch.autograd.grad(found.surrogate[0, 0], log_f)
    assert torch.isfinite(slope).all()
