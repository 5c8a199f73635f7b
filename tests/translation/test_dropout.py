"""Dropout from random bits."""

import pytest
import torch

from latentalign.translation.network.dropout import Dropout, dropout


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.8])
def test_rate_and_scale(rate: float) -> None:
    torch.manual_seed(1)
    values = torch.ones(401, 501)  # an odd number of elements: not every random word is used up
    dropped = dropout(values, rate, True)
    assert set(dropped.unique().tolist()) == {0.0, torch.tensor(1 / (1 - rate)).item()}
    # 200,901 draws: six standard deviations are below 0.0068
    assert (dropped == 0).float().mean().item() == pytest.approx(rate, abs=0.0068)


def test_gradient_passes_where_values_do() -> None:
    values = torch.ones(1000, requires_grad=True)
    dropped = dropout(values, 0.5, True)
    dropped.sum().backward()
    torch.testing.assert_close(values.grad, dropped.detach())


def test_evaluation_and_rate_zero_change_nothing() -> None:
    values = torch.randn(7)
    assert Dropout(0.5).eval()(values) is values
    assert Dropout(0.0)(values) is values
