"""Half precision: what is widened, and what autocast changes."""

import pytest
import torch

from latentalign.alignment.precision import autocast_dtype, unrounded, widened, without_autocast

HALF = torch.ones(2, 2, dtype=torch.bfloat16)
FULL = torch.ones(2, 2)


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_half_precision_is_widened(dtype: torch.dtype, wide: torch.dtype) -> None:
    assert widened(dtype) == wide


def test_only_what_autocast_has_rounded_is_widened() -> None:
    assert autocast_dtype(HALF) is None
    assert unrounded(HALF) is HALF  # somebody chose it
    with torch.autocast("cpu", torch.bfloat16):
        assert autocast_dtype(FULL) == torch.bfloat16
        assert unrounded(HALF).dtype == torch.float32
        assert unrounded(FULL.double()).dtype == torch.float64
    with torch.autocast("cpu", torch.float16):
        assert autocast_dtype(FULL) == torch.float16


def test_within_autocast_it_can_be_switched_off() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert (FULL @ FULL).dtype == torch.bfloat16
        with without_autocast(FULL):
            assert (FULL @ FULL).dtype == torch.float32


def test_a_device_without_autocast_is_no_mistake() -> None:
    elsewhere = FULL.to("meta")
    assert autocast_dtype(elsewhere) is None
    with without_autocast(elsewhere):
        assert (elsewhere @ elsewhere).dtype == torch.float32
