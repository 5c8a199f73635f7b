"""Masks by themselves: what is masked plays no part, whatever is there."""

import math

import pytest
import torch

from latentalign.alignment import Categorical, Dirichlet, LogisticNormal, ShapeError
from latentalign.alignment.masks import logsumexp, masked_logsumexp

TERMS = [[0.5, 3.0, -1.0], [math.inf, math.nan, 2.0], [1.0, 2.0, 3.0]]
MASK = torch.tensor([[True, False, True], [False, False, True], [False, False, False]])


def test_masked_terms_do_not_enter_the_sum() -> None:
    terms = torch.tensor(TERMS, dtype=torch.float64, requires_grad=True)
    found = masked_logsumexp(terms, MASK)
    assert found.tolist() == pytest.approx([math.log(math.exp(0.5) + math.exp(-1.0)), 2.0, -math.inf])
    (slope,) = torch.autograd.grad(found.sum(), terms)
    first = math.exp(0.5) / (math.exp(0.5) + math.exp(-1.0))
    assert slope.tolist() == [pytest.approx([first, 0.0, 1 - first]), [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]


def test_a_sum_over_another_axis() -> None:
    terms = torch.tensor([[-math.inf, 1.0], [-math.inf, 2.0]], dtype=torch.float64)
    expected = math.log(math.exp(1.0) + math.exp(2.0))
    assert logsumexp(terms, dim=0).tolist() == pytest.approx([-math.inf, expected])
    assert logsumexp(terms, dim=1).tolist() == pytest.approx([1.0, 2.0])


@pytest.mark.parametrize("family", [Categorical, Dirichlet, LogisticNormal])
@pytest.mark.parametrize("mask", [None, torch.zeros(1, 0, dtype=torch.bool)])
def test_no_positions_are_refused(family, mask) -> None:
    with pytest.raises(ShapeError, match=r"scores: expected at least one position, received \[1, 2, 0\]; "):
        family.from_scores(torch.zeros(1, 2, 0), mask)
