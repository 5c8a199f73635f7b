"""One step of a chain's filter at a time: what a search that makes the outputs itself carries along.

A hypothesis carries its belief log p(z_t | y_≤t), […,S]. `predict` gives log p(z_t | y_<t), from which the next output
is scored; once it is chosen, `update` makes the next belief. Any number of hypotheses go together: [B,S] or [B,W,S].
"""

import torch
from torch import Tensor

from latentalign.alignment.chains.forward_backward import wide
from latentalign.alignment.chains.transitions import LOG_ZERO, Transitions


def predict(
    belief: Tensor | None,  # [B,S] or [B,W,S]; None before the first output
    scores: Tensor,  # of the same shape
    transitions: Transitions,
    *,
    mask: Tensor | None = None,  # broadcasts to the scores, True = real position
    start: Tensor | None = None,  # broadcasts to the scores, added at the first output
) -> Tensor:
    """log π = log p(z_t | y_<t), of the shape of the scores; −inf where masked.

    Example:
        >>> from latentalign.alignment import MonotoneTransitions
        >>> first = predict(None, torch.zeros(1, 2), MonotoneTransitions(2))
        >>> belief = update(first, torch.tensor([[0.0, -torch.inf]]))  # the output can only come from position 0
        >>> predict(belief, torch.zeros(1, 2), MonotoneTransitions(2)).exp()
        tensor([[0.5000, 0.5000]])
    """
    with torch.no_grad():
        own = wide(scores) if mask is None else wide(scores).masked_fill(~mask, LOG_ZERO)
        if belief is None:
            log_pi = (own if start is None else own + start).log_softmax(dim=-1)
        else:
            source = wide(belief).clamp_min(LOG_ZERO) - transitions.leave(own)
            log_pi = transitions.arrive(source) + own
            # a position that cannot be left (the last one of a strict order) is left out
            log_pi = log_pi - log_pi.logsumexp(dim=-1, keepdim=True)
        log_pi = log_pi.to(scores.dtype)
        return log_pi if mask is None else log_pi.masked_fill(~mask, -torch.inf)


def update(log_predictive: Tensor, log_f: Tensor) -> Tensor:
    """The belief log p(z_t | y_≤t) ∝ π f after an output with log f […,S]; π itself where f is 0 everywhere."""
    joint = log_predictive + log_f
    total = joint.logsumexp(dim=-1, keepdim=True)
    return torch.where(total > -torch.inf, joint - total, log_predictive)
