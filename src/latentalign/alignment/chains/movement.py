"""Modules that make transitions: learnt jumps, or monotone."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from latentalign.alignment.chains.matrix import MatrixTransitions
from latentalign.alignment.chains.monotone import MonotoneTransitions
from latentalign.alignment.checks import check_count, check_positive
from latentalign.alignment.errors import ConfigError


def jump_matrix(jumps: Tensor, positions: int) -> Tensor:
    """r(k, i) = jumps[i − k], with jumps [2W+1] for the distances −W … W; further ones share the last: [S,S]."""
    width = (jumps.shape[-1] - 1) // 2
    place = torch.arange(positions, device=jumps.device)
    return jumps[(place - place[:, None]).clamp(-width, width) + width]


class Jumps(nn.Module):
    """A learnt score for every distance up to ± width; at first all are 0, and the chain has no memory.

    The scores are `rate` times the parameter. An optimiser like Adam, which moves every number by about as much in a
    step, then moves the scores `rate` times as fast as the weights of a network: there are few of them, and they have
    far to go.
    """

    def __init__(self, width: int = 10, *, rate: float = 1.0) -> None:
        super().__init__()
        check_count("width", width, hint="the largest jump with a score of its own; try 10")
        check_positive("rate", rate, hint="1 learns as fast as other weights; try 10")
        self.width, self.rate = width, rate
        self.scores = nn.Parameter(torch.zeros(2 * width + 1))

    def forward(self, positions: int) -> MatrixTransitions:
        """The transitions between that many positions."""
        return MatrixTransitions(jump_matrix(self.rate * self.scores, positions))


class Monotone(nn.Module):
    """Forwards only, with or without staying; nothing is learnt."""

    place: Tensor

    def __init__(self, *, stay: bool = True) -> None:
        super().__init__()
        self.stay = stay
        self.register_buffer("place", torch.empty(()), persistent=False)  # knows the module's device

    def forward(self, positions: int) -> MonotoneTransitions:
        """The transitions between that many positions."""
        return MonotoneTransitions(positions, self.stay, self.place.device)


def build_transitions(name: str, width: int = 10, *, rate: float = 1.0) -> Jumps | Monotone:
    """A module that makes transitions: `jump`, `monotone` (may stay) or `strictly-monotone` (may not)."""
    choices: dict[str, Callable[[], Jumps | Monotone]] = {
        "jump": lambda: Jumps(width, rate=rate),
        "monotone": Monotone,
        "strictly-monotone": lambda: Monotone(stay=False),
    }
    if name not in choices:
        raise ConfigError(
            f"transitions: expected one of {', '.join(choices)}, received {name!r}; choose one of these"
        )
    check_count("width", width, hint="the largest jump with a score of its own; try 10")
    return choices[name]()
