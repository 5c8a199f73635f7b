"""Dropout that draws sixteen random bits a number: on a CPU several times faster than torch's own."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def dropout(values: Tensor, rate: float, training: bool) -> Tensor:
    """Set each number to 0 with probability `rate` (to 1/65536) and scale the others up.

    Random bits come from torch's global generator, as they do in `torch.nn.functional.dropout`.
    """
    if not training or rate == 0.0:
        return values
    if values.device.type != "cpu":
        return F.dropout(values, rate, True)
    numbers = values.numel()
    words = torch.empty((numbers + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[:numbers].view(values.shape)  # even over −32768..32767
    kept = (bits >= round(rate * 65536) - 32768).to(values.dtype)
    return values * kept.mul_(1.0 / (1.0 - rate))


class Dropout(nn.Module):
    """`dropout` as a module, active in training mode."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, values: Tensor) -> Tensor:
        return dropout(values, self.rate, self.training)
