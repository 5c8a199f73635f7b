"""Paths of a chain: drawn, the best one, and which are possible at all. Scores have LOG_ZERO off the support."""

import torch
from torch import Tensor

from latentalign.alignment.chains.transitions import Transitions
from latentalign.alignment.errors import ConfigError


def draw_paths(
    scores: Tensor,  # [B,T,S]
    start: Tensor,  # [B,S]
    transitions: Transitions,
    steps: Tensor,  # [B,T]
    samples: int,
    generator: torch.Generator | None,
) -> Tensor:
    """Paths [K,B,T] by the chain's own steps; padding stays where the chain ended."""
    batch, count, positions = scores.shape
    path = [_draw((start + scores[:, 0]).expand(samples, batch, positions), generator)]
    for t in range(1, count):
        drawn = _draw(transitions.rows(path[-1]) + scores[:, t], generator)
        path.append(torch.where(steps[:, t], drawn, path[-1]))
    return torch.stack(path, dim=-1)


def _draw(logits: Tensor, generator: torch.Generator | None) -> Tensor:
    rows = logits.softmax(dim=-1).flatten(0, 1)
    return torch.multinomial(rows, 1, generator=generator).view(logits.shape[:2])


def best_path(scores: Tensor, start: Tensor, log_z: Tensor, matrix: Tensor, steps: Tensor) -> Tensor:
    """Viterbi's path [B,T]; padding stays where the path ends. `matrix` [S,S] or [B,S,S], `log_z` [B,T,S]."""
    best = start + scores[:, 0]  # [B,S]
    stay = torch.arange(scores.shape[-1], device=scores.device)
    came_from = []
    for t in range(1, scores.shape[1]):
        onward, origin = ((best - log_z[:, t])[:, :, None] + matrix).max(dim=1)
        real = steps[:, t, None]
        best = torch.where(real, onward + scores[:, t], best)
        came_from.append(torch.where(real, origin, stay))
    path = [best.argmax(dim=-1)]
    for origin in reversed(came_from):
        path.append(origin.gather(-1, path[-1][:, None])[:, 0])
    return torch.stack(path[::-1], dim=-1)


def with_a_future(mask: Tensor, steps: Tensor, transitions: Transitions) -> Tensor:
    """The positions [B,T,S] from which the remaining steps can be made; an example that has none is refused."""
    if transitions.allowed is None or (transitions.can_stay and _stays(mask)):
        return mask
    possible = mask[:, -1]
    found = [possible]
    for t in reversed(range(mask.shape[1] - 1)):
        onward = mask[:, t] & transitions.can_leave(possible)
        possible = torch.where(steps[:, t + 1, None], onward, mask[:, t])
        found.append(possible)
    lost = ~possible.any(dim=-1)
    if bool(lost.any()):
        _refuse(mask, transitions, int(lost.nonzero()[0]))
    return torch.stack(found[::-1], dim=1)


def _stays(mask: Tensor) -> bool:
    """Whether each example [B,T,S] begins somewhere, and no position is lost at a later step."""
    return bool(mask[:, 0].any(dim=-1).all()) and bool((mask[:, 1:] | ~mask[:, :-1]).all())


def _refuse(mask: Tensor, transitions: Transitions, example: int) -> None:
    reached, step = mask[:, 0], 0
    while bool(reached[example].any()):
        step += 1
        reached = mask[:, step] & transitions.can_arrive(reached)
    raise ConfigError(
        f"transitions: expected at least one path, received none for example {example}: no position can be reached "
        f"at step {step}; allow staying, or give it more positions than steps"
    )
