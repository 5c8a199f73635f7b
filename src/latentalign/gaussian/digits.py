"""The handwritten digits that ship inside scikit-learn, as black and white pictures of 64 pixels."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from latentalign.files import digest

SIDE = 8
PIXELS = SIDE * SIDE


@dataclass(frozen=True)
class DigitBatch:
    """B pictures. They are outputs of one step each: T = 1."""

    pixels: Tensor  # [B,PIXELS], 0 or 1
    labels: Tensor  # [B]: which digit it is; only pictures of the latent plane use it

    def to(self, device: torch.device | str) -> "DigitBatch":
        return DigitBatch(self.pixels.to(device), self.labels.to(device))


class Digits:
    """A part of the digits, with the plan of batches a trainer asks for."""

    def __init__(self, pixels: Tensor, labels: Tensor, *, batch_size: int, name: str = "digits") -> None:
        self.pixels, self.labels, self.batch_size, self.name = pixels, labels, batch_size, name

    def __len__(self) -> int:
        return len(self.pixels)

    def plan(self, epoch: int, seed: int) -> list[list[int]]:
        """Batches of picture numbers, shuffled by epoch and seed; in order for epoch < 0."""
        order = list(range(len(self)))
        if epoch >= 0:
            random.Random(f"{seed}/{epoch}").shuffle(order)
        return [order[start : start + self.batch_size] for start in range(0, len(order), self.batch_size)]

    def collate(self, indices: Sequence[int]) -> DigitBatch:
        chosen = torch.tensor(indices)
        return DigitBatch(self.pixels[chosen], self.labels[chosen])

    def describe(self, indices: Sequence[int]) -> str:
        return f"pictures {', '.join(map(str, indices))} of the {self.name}"

    def fingerprint(self) -> str:
        """A checksum of all pictures."""
        return digest(self.pixels.contiguous().numpy(), self.labels.contiguous().numpy())


def load_digits(*, held_out: float, batch_size: int, threshold: int, seed: int) -> tuple[Digits, Digits]:
    """Pictures to learn from and pictures held out.

    Grey values go from 0 to 16; those of at least `threshold` are ink. Binary pixels make every bound one of
    a true probability.
    """
    from sklearn import datasets  # takes a while to import

    found = datasets.load_digits()
    pixels = torch.tensor(found.data >= threshold, dtype=torch.float32)
    labels = torch.tensor(found.target)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(seed))
    count = min(max(1, round(held_out * len(pixels))), len(pixels) - 1)
    parts = []
    for name, chosen in (("training digits", order[count:]), ("held-out digits", order[:count])):
        parts.append(Digits(pixels[chosen], labels[chosen], batch_size=batch_size, name=name))
    return parts[0], parts[1]
