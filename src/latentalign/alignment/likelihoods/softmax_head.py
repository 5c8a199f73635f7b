"""f = softmax(W σ(x + q) + b), the likelihood of most models here, in blocks that stay in the processor's cache.

A plain implementation writes logits of every (step, position) pair to memory several times over; at a vocabulary of
thousands that costs more than the products themselves. Here a block of rows goes through product, exponential and sum
while it is in the cache, and nothing of size V is kept beyond a fixed budget: the backward pass computes it again.

What holds: `SoftmaxHead(output).log_prob` and `SoftmaxHead(output, blockwise=False).log_prob` give the same numbers
and the same first and second derivatives, up to rounding, for every block size and budget. The second is the obvious
way: call the head, take the cross entropy.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from latentalign.alignment.errors import ConfigError
from latentalign.alignment.likelihoods.heads import ChunkedHead, PairwiseHead, Rows, check_targets
from latentalign.alignment.precision import autocast_dtype, widened, without_autocast

BLOCK_ELEMENTS = 2**21  # logits of one block: 8 MB in float32
# of the hidden layer and the probabilities that one request keeps for the backward pass, 64 MB in float32: writing and
# reading an exponential takes a seventh of the time of computing it again
KEPT_ELEMENTS = 2**24


@dataclass(frozen=True)
class Activation:
    """An activation, the same one overwriting its input, and the gradient of its input: (of its value, value)."""

    plain: Callable[[Tensor], Tensor]
    overwriting: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor], Tensor]


def _tanh_(inputs: Tensor) -> Tensor:
    """tanh(x) = 2 σ(2x) − 1: on a CPU σ takes a third of the time of tanh."""
    return inputs.mul_(2).sigmoid_().mul_(2).sub_(1)


ACTIVATIONS = {
    "tanh": Activation(torch.tanh, _tanh_, torch.ops.aten.tanh_backward),
    "relu": Activation(torch.relu, torch.relu_, lambda upstream, value: upstream * (value > 0)),
}


class SoftmaxHead(PairwiseHead):
    """logits = output(activation(context + query)), with context and query already projected to one size.

    `blockwise=False` evaluates log f as any other head's: slower, and easier to believe.
    """

    has_logits = True

    def __init__(self, output: nn.Linear, *, activation: str = "tanh", blockwise: bool = True) -> None:
        if activation not in ACTIVATIONS:
            raise ConfigError(
                f"activation: expected one of {', '.join(ACTIVATIONS)}, received {activation!r}; try tanh"
            )
        self.output = output
        self.activation = ACTIVATIONS[activation]
        self.width = output.out_features
        self.is_lazy = self.has_shortlists = blockwise

    def __call__(self, context: Tensor, query: Tensor) -> Tensor:
        inputs = context + query
        activation = self.activation.plain if torch.is_grad_enabled() else self.activation.overwriting
        return self.output(activation(inputs))

    def logit_of(self, context: Tensor, query: Tensor, words: Tensor) -> Tensor:
        """The logit of one word for each pair: contexts and queries […,H], words […] -> […]."""
        hidden = self.activation.plain(context + query)
        logits = (hidden * nn.functional.embedding(words, self.output.weight)).sum(-1)
        return logits if self.output.bias is None else logits + self.output.bias[words]

    def mean_over_target(self, context: Tensor, query: Tensor, targets: Tensor) -> Tensor:
        hidden = self.activation.plain(context + query)  # […,H]
        bias = self._bias()
        return hidden @ self.output.weight.mean(0) + bias.mean() - self.logit_of(context, query, targets)

    def log_prob(self, values: Tensor, queries: Tensor, rows: Rows, targets: Tensor) -> Tensor:
        if not self.is_lazy:
            return ChunkedHead(self, width=self.width).log_prob(values, queries, rows, targets)
        check_targets(targets, self.output.out_features)
        half = autocast_dtype(values)
        result_dtype = torch.promote_types(values.dtype, self.output.weight.dtype)
        dtype = widened(result_dtype)  # of all but the products
        weight = self.output.weight if half is None else self.output.weight.to(half)
        inputs = (values.to(dtype), queries.to(dtype), weight, self._bias().to(dtype))
        with without_autocast(values):
            result: Tensor = _PairLogProb.apply(*inputs, *rows, targets, self.activation)  # type: ignore[no-untyped-call]
        return result if half else result.to(result_dtype)

    def _bias(self) -> Tensor:
        bias = self.output.bias
        return self.output.weight.new_zeros(self.output.out_features) if bias is None else bias

    @torch.no_grad()
    def among(self, values: Tensor, queries: Tensor, rows: Rows, words: Tensor) -> Tensor:
        """Logarithm of a softmax over a few words [B,C] of each example: [B,N,C].

        Pair n of example b reads values[b, rows[0][b,n]] and queries[b, rows[1][b,n]].

        It bounds log f from above, since the normaliser of a softmax is at least its part over a few words: the more
        of the likely words are among them, the less is missing. A word that comes twice counts once: −inf where it
        comes again.
        """
        found = values.new_empty(*rows[0].shape, words.shape[1], dtype=widened(values.dtype))
        for block, part in self._among(values, queries, rows, words):
            found[:, block] = part
        return found

    def _among(
        self, values: Tensor, queries: Tensor, rows: Rows, words: Tensor
    ) -> Iterator[tuple[slice, Tensor]]:
        """The same for some of the pairs at a time: a slice of N, and [B,n,C]."""
        (batch, count), width, dtype = rows[0].shape, queries.shape[2], widened(values.dtype)
        weight = nn.functional.embedding(words, self.output.weight).to(dtype).transpose(1, 2)  # [B,H,C]
        again = _first(words) < torch.arange(words.shape[1], device=words.device)
        bias = self._bias()[words].to(dtype).masked_fill_(again, -torch.inf)  # [B,C]
        of_value, of_query = (
            row + torch.arange(batch, device=words.device)[:, None] * each.shape[1]
            for row, each in zip(rows, (values, queries), strict=True)
        )
        values, queries = (each.flatten(0, 1).to(dtype) for each in (values, queries))
        size = max(1, BLOCK_ELEMENTS // (max(1, batch) * max(width, words.shape[1])))
        for block in (slice(start, start + size) for start in range(0, count, size)):
            with without_autocast(values):
                hidden = _hidden(
                    values,
                    queries,
                    (of_value[:, block].flatten(), of_query[:, block].flatten()),
                    self.activation,
                )
                logits = torch.baddbmm(bias[:, None], hidden.view(batch, -1, width), weight)
                yield block, logits.log_softmax(dim=-1)

    @torch.no_grad()
    def upper_bound(
        self,
        values: Tensor,
        queries: Tensor,
        targets: Tensor,
        positions: Tensor,
        others: Tensor | None = None,
    ) -> Tensor | None:
        """By a softmax over the words of the same example (other positions would rather say those) and `others`."""
        if not self.has_shortlists:
            return None
        words = targets if others is None else torch.cat([targets, others], dim=1)  # [B,T+C]
        steps = torch.arange(targets.shape[1], device=targets.device)[:, None].expand_as(positions)
        own = _first(targets)[:, :, None].expand_as(positions).flatten(1)  # [B,T·K]
        found = values.new_empty(own.shape, dtype=widened(values.dtype))
        rows = (positions.flatten(1), steps.flatten(1))
        for block, part in self._among(values, queries, rows, words):
            found[:, block] = part.gather(2, own[:, block, None])[..., 0]
        return found.view(positions.shape)


def _first(words: Tensor) -> Tensor:
    """Where each word of a row comes for the first time: [B,C] -> [B,C]."""
    if words.numel() == 0:
        return words
    return (words[:, :, None] == words[:, None, :]).to(torch.uint8).argmax(dim=-1)


def blocks(count: int, width: int) -> Iterator[slice]:
    """Parts of `count` rows whose `width` numbers each stay in the processor's cache together."""
    size = max(32, BLOCK_ELEMENTS // width)
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def _in_blocks(groups: tuple[Tensor, ...], width: int) -> Iterator[tuple[int, Tensor]]:
    """Indices group by group, each with its group's number."""
    for number, group in enumerate(groups):
        for block in blocks(group.shape[0], width):
            yield number, group[block]


class _PairLogProb(torch.autograd.Function):
    """Block by block; keeps what the first blocks computed, within a budget, and computes the others again.

    The backward pass leaves out pairs whose upstream gradient is 0, or too small to change a sum: of many pairs only
    those that are used cost.
    Products are in the dtype of `weight`, all else in that of the other inputs.
    """

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
        activation: Activation,
    ) -> Tensor:
        count, width = targets.shape[0], weight.shape[0]
        result = values.new_empty(count)
        # the first blocks, as many as the budget has room for
        room = KEPT_ELEMENTS // (width + values.shape[1]) if any(ctx.needs_input_grad[:4]) else 0
        last = max((block.stop for block in blocks(count, width) if block.stop <= room), default=0)
        kept = values.new_empty(last, width)  # probabilities
        kept_hidden = values.new_empty(last, values.shape[1])
        normalizer = values.new_empty(count, 1)  # log Σ exp(logits)
        buffer, hidden_buffer = _Buffer(values, width), _Buffer(values, values.shape[1])
        for block in blocks(count, width):
            keep, size = block.stop <= last, block.stop - block.start
            room_for_hidden = kept_hidden[block] if keep else hidden_buffer.rows(size)
            rows = (value_rows[block], query_rows[block])
            hidden = _hidden(values, queries, rows, activation, out=room_for_hidden)
            logits = _logits(hidden, weight, bias, out=kept[block] if keep else buffer.rows(size))
            picked = logits.gather(1, targets[block, None])
            largest = logits.amax(dim=1, keepdim=True)
            total = logits.sub_(largest).exp_().sum(dim=1, keepdim=True)
            normalizer[block] = largest + total.log()
            result[block] = (picked - normalizer[block])[:, 0]
            if keep:
                logits.div_(total)
        ctx.save_for_backward(values, queries, weight, bias, value_rows, query_rows, targets, normalizer)
        ctx.kept, ctx.kept_hidden, ctx.activation = kept, kept_hidden, activation
        return result

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        values, queries, weight, bias, value_rows, query_rows, targets, normalizer = ctx.saved_tensors
        with without_autocast(values):
            if torch.is_grad_enabled():  # second derivatives are wanted
                return (*_differentiable_slopes(ctx, upstream), *(None,) * 4)
            activation, kept = ctx.activation, ctx.kept
            slopes = [
                torch.zeros_like(tensor, dtype=values.dtype) for tensor in (values, queries, weight, bias)
            ]
            live = _not_negligible(upstream)
            buffer, hidden_buffer = _Buffer(values, weight.shape[0]), _Buffer(values, values.shape[1])
            border = int((live < len(kept)).sum())
            for number, pairs in _in_blocks((live[:border], live[border:]), weight.shape[0]):
                of_value, of_query = value_rows[pairs], query_rows[pairs]
                hidden, probs = hidden_buffer.rows(len(pairs)), buffer.rows(len(pairs))
                if number == 0:
                    torch.index_select(ctx.kept_hidden, 0, pairs, out=hidden)
                    torch.index_select(kept, 0, pairs, out=probs)
                else:
                    _hidden(values, queries, (of_value, of_query), activation, out=hidden)
                    _logits(hidden, weight, bias, out=probs).sub_(normalizer[pairs]).exp_()
                # gradient of the logits: upstream · (one-hot − probabilities)
                scale = upstream[pairs, None]
                slope = probs.mul_(-scale).scatter_add_(1, targets[pairs, None], scale)
                _add_product(slopes[2], slope.t(), hidden, weight.dtype)
                slopes[3].add_(slope.sum(dim=0))
                through = activation.backward(_product(slope, weight), hidden)
                slopes[0].index_add_(0, of_value, through)
                slopes[1].index_add_(0, of_query, through)
            slopes[2] = slopes[2].to(weight.dtype)
        return (*slopes, *(None,) * 4)


def _not_negligible(upstream: Tensor) -> Tensor:
    """Where a gradient [N] is not lost by rounding: all the others together are less than eps times the largest.

    Those of a sharp alignment are so small that their products are denormal numbers, which a processor multiplies many
    times more slowly than others.
    """
    if upstream.numel() == 0:
        return upstream.new_empty(0, dtype=torch.long)
    limits = torch.finfo(upstream.dtype)
    sizes = upstream.abs()
    # the limit is finite, so that an infinite gradient stays; nothing is below a limit that is NaN
    limit = (sizes.amax() * (limits.eps / len(upstream))).clamp(max=limits.max)
    return (~(sizes <= limit)).nonzero()[:, 0]


def _differentiable_slopes(ctx: Any, upstream: Tensor) -> Iterator[Tensor | None]:
    """Gradients of the four inputs by plain operations, which can be differentiated again."""
    *inputs, value_rows, query_rows, targets, _ = ctx.saved_tensors
    values, queries, weight, bias = inputs
    parts = []
    for block in blocks(len(targets), len(weight)):
        hidden = ctx.activation.plain(values[value_rows[block]] + queries[query_rows[block]])
        logits = _product(hidden, weight.t()) + bias
        parts.append(-nn.functional.cross_entropy(logits, targets[block], reduction="none"))
    wanted = [tensor for tensor, need in zip(inputs, ctx.needs_input_grad, strict=False) if need]
    found = iter(
        torch.autograd.grad(torch.cat(parts), wanted, upstream, create_graph=True, allow_unused=True)
    )
    return (next(found) if need else None for need in ctx.needs_input_grad[:4])


class _Buffer:
    """One block's memory, used again for every block."""

    def __init__(self, like: Tensor, width: int) -> None:
        self._like, self._width = like, width
        self._memory: Tensor | None = None

    def rows(self, count: int) -> Tensor:
        """Room for `count` rows; what was there is overwritten."""
        if self._memory is None or self._memory.shape[0] < count:
            self._memory = self._like.new_empty(count, self._width)
        return self._memory[:count]


def _hidden(
    values: Tensor, queries: Tensor, rows: Rows, activation: Activation, *, out: Tensor | None = None
) -> Tensor:
    summed = torch.index_select(values, 0, rows[0], out=out).add_(queries.index_select(0, rows[1]))
    return activation.overwriting(summed)


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor, *, out: Tensor) -> Tensor:
    if hidden.dtype == weight.dtype:
        return torch.addmm(bias, hidden, weight.t(), out=out)
    return out.copy_(hidden.to(weight.dtype) @ weight.t()).add_(bias)


def _product(left: Tensor, right: Tensor) -> Tensor:
    """left @ right, multiplied in the dtype of the right and returned in that of the left."""
    return (left.to(right.dtype) @ right).to(left.dtype)


def _add_product(total: Tensor, left: Tensor, right: Tensor, dtype: torch.dtype) -> None:
    """total += left @ right, multiplied in `dtype`."""
    if total.dtype == dtype:
        total.addmm_(left, right)
    else:
        total.add_(left.to(dtype) @ right.to(dtype))
