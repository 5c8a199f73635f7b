"""The device that nobody has, itself: it computes, it refuses to mix, and it sees a forgotten `device=`."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.devices import Elsewhere, Largest, Mixed, at_home, elsewhere


def test_it_computes_what_the_cpu_computes_forward_and_backward() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.LayerNorm(4), nn.Linear(4, 2))
    inputs, targets = torch.randn(5, 3), torch.randint(2, (5,))
    expected = nn.functional.cross_entropy(model(inputs), targets)
    slopes = torch.autograd.grad(expected, list(model.parameters()))
    with elsewhere() as device:
        moved = copy.deepcopy(model).to(device)
        assert {parameter.device for parameter in moved.parameters()} == {device}
        found = nn.functional.cross_entropy(
            checkpoint(moved, inputs.to(device), use_reentrant=False), targets.to(device)
        )
        assert found.device == device
        found.backward()
        grads = [parameter.grad for parameter in moved.parameters()]
        assert all(grad.device == device for grad in grads)
        back = moved.to("cpu")
        assert {parameter.device.type for parameter in back.parameters()} == {"cpu"}
    torch.testing.assert_close(at_home(found), expected.detach())
    for a, b in zip(grads, slopes, strict=True):
        torch.testing.assert_close(at_home(a), b)
    for a, b in zip(back.parameters(), model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_it_refuses_to_mix_but_for_numbers() -> None:
    with elsewhere() as device:
        there = torch.ones(3, device=device)
        assert isinstance(there, Elsewhere)
        for mistake in (
            lambda: there + torch.ones(3),
            lambda: torch.ones(3) * there,
            lambda: torch.cat([there, torch.ones(1)]),
            lambda: there[torch.tensor([0])],
            lambda: torch.where(torch.tensor([True]), there, there),
        ):
            with pytest.raises(Mixed):
                mistake()
        assert (there + torch.tensor(2.0) + 1).tolist() == [4.0] * 3
        there[1:] = torch.zeros(2).to(device)
        assert there.cpu().tolist() == [1.0, 0.0, 0.0]
        assert type(there.cpu()) is torch.Tensor
        assert bool((there >= 0).all())


def test_its_random_numbers_need_a_generator_of_its_own() -> None:
    with elsewhere() as device:
        for generator in (None, torch.Generator(device=device).manual_seed(0)):
            assert torch.rand(2, device=device, generator=generator).device == device
            assert torch.multinomial(torch.ones(3, device=device), 1, generator=generator).device == device
        with pytest.raises(Mixed):
            torch.rand(2, device=device, generator=torch.Generator())
        assert torch.rand(2, generator=torch.Generator()).device.type == "cpu"


def test_views_and_writing_into_a_tensor_stay_connected() -> None:
    with elsewhere() as device:
        table = torch.zeros(2, 3, device=device)
        row = table[1]
        row.add_(2)
        torch.addmm(
            torch.zeros(3, device=device),
            torch.ones(1, 2, device=device),
            torch.ones(2, 3, device=device),
            out=table[:1],
        )
        assert table.tolist() == [[2.0] * 3] * 2


def test_the_largest_tensor_is_seen() -> None:
    with Largest() as largest:
        (torch.ones(4, 1) @ torch.ones(1, 6)).sum()
        torch.ones(1, 1).expand(100, 100)
    assert largest.elements == 24
    assert "mm" in largest.made_by
