"""f = softmax(W σ(x + q) + b), the likelihood of most models here, in blocks that stay in the processor's cache.

A plain implementation writes logits of every (step, position) pair to memory several times over; at a vocabulary of
thousands that costs more than the products themselves. Here a block of rows goes through product, exponential and sum
while it is in the cache, and nothing of size V is kept beyond a fixed budget: the backward pass computes it again.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from latentalign.alignment.errors import ConfigError

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": torch.relu}
BLOCK_ELEMENTS = 2**19  # logits of one block: 2 MB in float32
KEPT_ELEMENTS = 2**22  # exponentials kept for the backward pass instead of computing them again


class SoftmaxHead:
    """logits = output(activation(context + query)), with context and query already projected to one size."""

    def __init__(self, output: nn.Linear, *, activation: str = "tanh") -> None:
        if activation not in ACTIVATIONS:
            raise ConfigError(
                f"activation: expected one of {', '.join(ACTIVATIONS)}, received {activation!r}; try tanh"
            )
        self.output = output
        self.activation = ACTIVATIONS[activation]

    def __call__(self, context: Tensor, query: Tensor) -> Tensor:
        return self.output(self.activation(context + query))

    def log_prob(
        self, values: Tensor, queries: Tensor, rows: tuple[Tensor, Tensor], targets: Tensor
    ) -> Tensor:
        """log f [N] of targets [N] where pair n reads values[rows[0][n]] and queries[rows[1][n]]."""
        bias = self.output.bias
        if bias is None:
            bias = self.output.weight.new_zeros(self.output.out_features)
        if torch.is_autocast_enabled(values.device.type) or values.device.type != "cpu":
            return _plain(values, queries, self.output.weight, bias, rows, targets, self.activation)
        inputs = (values, queries, self.output.weight, bias, *rows, targets, self.activation)
        result: Tensor = _PairLogProb.apply(*inputs)  # type: ignore[no-untyped-call]
        return result


def _plain(
    values: Tensor,
    queries: Tensor,
    weight: Tensor,
    bias: Tensor,
    rows: tuple[Tensor, Tensor],
    targets: Tensor,
    activation: Callable[[Tensor], Tensor],
) -> Tensor:
    """The same in plain operations: for second derivatives and for other devices."""
    hidden = activation(values.index_select(0, rows[0]) + queries.index_select(0, rows[1]))
    return -nn.functional.cross_entropy(nn.functional.linear(hidden, weight, bias), targets, reduction="none")


def _blocks(count: int, width: int) -> Iterator[slice]:
    size = max(32, BLOCK_ELEMENTS // width)
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


class _PairLogProb(torch.autograd.Function):
    """Block by block; keeps the exponentials of a small request and recomputes those of a large one."""

    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,  # [M,H]
        queries: Tensor,  # [R,H]
        weight: Tensor,  # [V,H]
        bias: Tensor,  # [V]
        value_rows: Tensor,  # [N]
        query_rows: Tensor,  # [N]
        targets: Tensor,  # [N]
        activation: Callable[[Tensor], Tensor],
    ) -> Tensor:
        count, width = targets.shape[0], weight.shape[0]
        result = values.new_empty(count)
        shift = values.new_empty(count, 1)  # log Σ exp of each row's logits
        keep = any(ctx.needs_input_grad[:4]) and count * width <= KEPT_ELEMENTS
        kept = []
        buffer: Tensor | None = None
        for block in _blocks(count, width):
            hidden = _hidden(values, queries, value_rows[block], query_rows[block], activation)
            if keep or buffer is None or buffer.shape[0] != hidden.shape[0]:
                buffer = values.new_empty(hidden.shape[0], width)
            logits = torch.mm(hidden, weight.t(), out=buffer).add_(bias)
            picked = logits.gather(1, targets[block, None])
            largest = logits.amax(dim=1, keepdim=True)
            total = logits.sub_(largest).exp_().sum(dim=1, keepdim=True)
            shift[block] = largest + total.log()
            result[block] = (picked - shift[block])[:, 0]
            if keep:
                kept.append((logits, total))
        ctx.save_for_backward(values, queries, weight, bias, value_rows, query_rows, targets, shift)
        ctx.kept, ctx.activation = kept, activation
        return result

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        values, queries, weight, bias, value_rows, query_rows, targets, shift = ctx.saved_tensors
        activation = ctx.activation
        if torch.is_grad_enabled():  # somebody wants second derivatives
            inputs = [values, queries, weight, bias]
            wanted = [tensor for tensor, need in zip(inputs, ctx.needs_input_grad, strict=False) if need]
            result = _plain(values, queries, weight, bias, (value_rows, query_rows), targets, activation)
            found = iter(torch.autograd.grad(result, wanted, upstream, create_graph=True, allow_unused=True))
            return (*(next(found) if need else None for need in ctx.needs_input_grad[:4]), *(None,) * 4)
        slopes = [torch.zeros_like(tensor) for tensor in (values, queries, weight, bias)]
        buffer: Tensor | None = None
        for number, block in enumerate(_blocks(targets.shape[0], weight.shape[0])):
            with torch.enable_grad():
                joined = values.index_select(0, value_rows[block]) + queries.index_select(
                    0, query_rows[block]
                )
                joined = joined.detach().requires_grad_()
                hidden = activation(joined)
            scale = -upstream[block, None]
            if ctx.kept:
                probs, total = ctx.kept[number]
                probs = probs * (scale / total)
            else:
                if buffer is None or buffer.shape[0] != hidden.shape[0]:
                    buffer = values.new_empty(hidden.shape[0], weight.shape[0])
                probs = torch.mm(hidden.detach(), weight.t(), out=buffer).add_(bias)
                probs = probs.sub_(shift[block]).exp_().mul_(scale)
            # gradient of the logits: upstream · (one-hot − probabilities)
            probs.scatter_add_(1, targets[block, None], -scale)
            slopes[2].addmm_(probs.t(), hidden.detach())
            slopes[3].add_(probs.sum(dim=0))
            (through,) = torch.autograd.grad(hidden, joined, probs @ weight)
            slopes[0].index_add_(0, value_rows[block], through)
            slopes[1].index_add_(0, query_rows[block], through)
        return (*slopes, *(None,) * 4)


def _hidden(
    values: Tensor,
    queries: Tensor,
    value_rows: Tensor,
    query_rows: Tensor,
    activation: Callable[[Tensor], Tensor],
) -> Tensor:
    return activation(values.index_select(0, value_rows) + queries.index_select(0, query_rows))
