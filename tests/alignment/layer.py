"""A small example for `LatentAttention`, and every objective to run it with."""

import torch
from torch import Tensor, nn

from latentalign.alignment import (
    LatentAttention,
)
from tests.alignment.choices import seeded

POSTERIOR_NEEDED = ["variational", "wake", "rws", "vimco", {"name": "svi", "start": "posterior"}]
OBJECTIVES = [*POSTERIOR_NEEDED, "soft", "marginal", {"name": "marginal", "prune": 0.05}, "hard", "svi", "em"]
PREDICTORS = ["exact", "kmax:2", "sample:4", "soft"]


class Example:
    """Queries, memory, a mask, targets and a head over 6 words."""

    def __init__(self, *, dtype: torch.dtype = torch.float64, batch: int = 2, steps: int = 3) -> None:
        torch.manual_seed(0)
        self.queries = torch.randn(batch, steps, 4).to(dtype)
        self.memory = torch.randn(batch, 5, 4).to(dtype)
        self.mask = torch.arange(5) < torch.tensor([5, 3])[:batch, None]
        self.targets = torch.randint(6, (batch, steps))
        self.posterior_scores = torch.randn(batch, steps, 5).to(dtype).requires_grad_()
        self.output = nn.Linear(4, 6).to(dtype)
        self.impossible = torch.zeros(6, dtype=dtype)  # −inf: a word that cannot come

    def head(self, context: Tensor, query: Tensor) -> Tensor:
        return self.output(torch.tanh(context + query)) + self.impossible

    def run(self, attend: LatentAttention, **options):
        arguments = {"mask": self.mask, "targets": self.targets, "generator": seeded()} | options
        if attend.objective.needs_posterior:
            arguments.setdefault("posterior_scores", self.posterior_scores)
        return attend(self.queries, self.memory, arguments.pop("head", self.head), **arguments)

    def slopes(self, attend: LatentAttention, loss: Tensor) -> list[Tensor]:
        leaves = [*attend.parameters(), *self.output.parameters(), self.posterior_scores]
        return list(torch.autograd.grad(loss, leaves, materialize_grads=True))


def attention(dtype: torch.dtype = torch.float64, **options) -> LatentAttention:
    torch.manual_seed(3)
    return LatentAttention(4, 4, **options).to(dtype)


def assert_same(found, expected) -> None:
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)
