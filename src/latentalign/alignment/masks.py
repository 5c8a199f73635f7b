"""The one place where masks become minus infinity.

Masks are bool, True = a real position: the opposite of torch's `key_padding_mask`, where True is padding.
"""

import torch
from torch import Tensor

from latentalign.alignment.checks import check_shapes
from latentalign.alignment.errors import ShapeError


def expand_mask(mask: Tensor | None, like: Tensor) -> Tensor:
    """Bring a mask [B,S] or [B,T,S] (True = real; or none) to the shape [B,T,S] of `like`, refusing empty rows."""
    if like.shape[-1] == 0:
        raise ShapeError(
            f"scores: expected at least one position, received {list(like.shape)}; an output has to align to "
            "something"
        )
    if mask is None:
        return torch.ones_like(like, dtype=torch.bool)
    if mask.dtype != torch.bool:
        raise ShapeError(
            f"mask: expected dtype bool (True = real position), received {mask.dtype}; use mask.bool()"
        )
    batch, steps, positions = like.shape
    sizes = {"B": batch, "T": steps, "S": positions}
    if mask.dim() == 2:
        check_shapes(sizes, mask=(mask, "B S"))
        mask = mask[:, None, :]
    else:
        check_shapes(sizes, mask=(mask, "B T S"))
    filled = mask.any(dim=-1)  # [B,1|T]
    if not bool(filled.all()):
        row = tuple((~filled).nonzero()[0].tolist())
        raise ShapeError(
            "mask: expected at least one real position in every row, received an empty row at "
            f"[batch, step] = {list(row)}; drop that example or give it one position"
        )
    return mask.expand(batch, steps, positions)


def masked_log_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """log softmax over the last axis with probability exactly 0 (log −inf) where the mask is False."""
    return scores.masked_fill(~mask, -torch.inf).log_softmax(dim=-1)


def masked_logsumexp(terms: Tensor, mask: Tensor) -> Tensor:
    """log Σ exp over the last axis, real positions only; −inf (with zero gradient) where there is none."""
    return logsumexp(terms.masked_fill(~mask, -torch.inf), dim=-1)


def logsumexp(terms: Tensor, dim: int) -> Tensor:
    """log Σ exp; where every term is −inf, −inf with a gradient of 0 (torch's own is NaN there)."""
    nothing = (terms == -torch.inf).all(dim=dim, keepdim=True)
    return terms.masked_fill(nothing, 0.0).logsumexp(dim=dim).masked_fill(nothing.squeeze(dim), -torch.inf)


def zero_where_masked(values: Tensor, mask: Tensor) -> Tensor:
    """0 where the mask is False, so that 0·(−inf) never arises in a value or a gradient."""
    return values.masked_fill(~mask, 0.0)


def largest(values: Tensor, count: int) -> Tensor:
    """True at the `count` largest of the last axis."""
    chosen = values.topk(min(count, values.shape[-1]), dim=-1).indices
    return torch.zeros_like(values, dtype=torch.bool).scatter_(-1, chosen, True)
