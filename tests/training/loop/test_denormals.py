"""While training, numbers below 1e-38 are 0; before and afterwards nothing is changed."""

import pytest
import torch

from latentalign.training.loop.denormals import denormals_flushed


def half_of_the_smallest() -> float:
    """Half of the smallest ordinary float32: a denormal, or 0 where they are flushed."""
    return float((torch.full((1,), torch.finfo(torch.float32).tiny) * 0.5).double())


@pytest.fixture(autouse=True)
def _supported() -> None:
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormals")
    torch.set_flush_denormal(False)


def test_denormals_are_zero_inside_only() -> None:
    assert half_of_the_smallest() > 0
    with denormals_flushed():
        assert half_of_the_smallest() == 0
    assert half_of_the_smallest() > 0


def test_an_error_puts_it_back() -> None:
    with pytest.raises(RuntimeError), denormals_flushed():
        raise RuntimeError
    assert half_of_the_smallest() > 0


def test_a_process_that_flushes_goes_on_flushing() -> None:
    torch.set_flush_denormal(True)
    try:
        with denormals_flushed():
            pass
        assert half_of_the_smallest() == 0
    finally:
        torch.set_flush_denormal(False)
