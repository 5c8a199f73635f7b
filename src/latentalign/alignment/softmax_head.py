"""f = softmax(W σ(x + q) + b), the likelihood of most models here, in blocks that stay in the processor's cache.

A plain implementation writes logits of every (step, position) pair to memory several times over; at a vocabulary of
thousands that costs more than the products themselves. Here a block of rows goes through product, exponential and sum
while it is in the cache, and nothing of size V is kept beyond a fixed budget: the backward pass computes it again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from latentalign.alignment.errors import ConfigError

BLOCK_ELEMENTS = 2**21  # logits of one block: 8 MB in float32
# exponentials of one request kept for the backward pass, 64 MB in float32: writing and reading one takes a seventh of
# the time of computing it again
KEPT_ELEMENTS = 2**24

IGNORED = -100  # a target that torch's cross entropy leaves out; here log f = 0


@dataclass(frozen=True)
class Activation:
    """activation(x) = s · core(s · x) − (s − 1) with a stretch s, and its slope as a function of its value."""

    plain: Callable[[Tensor], Tensor]  # for a graph
    core: Callable[[Tensor], Tensor]  # in the place of its input
    stretch: float
    slope: Callable[[Tensor], Tensor]

    def in_place(self, inputs: Tensor) -> Tensor:
        """The activation in the place of its input."""
        if self.stretch == 1:
            return self.core(inputs)
        return self.core(inputs.mul_(self.stretch)).mul_(self.stretch).sub_(self.stretch - 1)


ACTIVATIONS = {
    # by the logistic function: on a CPU it takes a third of the time of tanh
    "tanh": Activation(torch.tanh, torch.sigmoid_, 2.0, lambda value: 1 - value.square()),
    "relu": Activation(torch.relu, torch.relu_, 1.0, lambda value: (value > 0).to(value.dtype)),
}


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
        with_graph = torch.is_grad_enabled()
        activation = self.activation.plain if with_graph else self.activation.in_place
        return self.output(activation(context + query))

    def is_lazy(self, values: Tensor) -> bool:
        """Whether these values go through the blocks, whose backward pass leaves out pairs without a gradient."""
        return values.device.type == "cpu" and not torch.is_autocast_enabled("cpu")

    def log_prob(
        self, values: Tensor, queries: Tensor, rows: tuple[Tensor, Tensor], targets: Tensor
    ) -> Tensor:
        """log f [N] of targets [N] where pair n reads values[rows[0][n]] and queries[rows[1][n]]."""
        bias = self.output.bias
        if bias is None:
            bias = self.output.weight.new_zeros(self.output.out_features)
        if not self.is_lazy(values):
            return _plain(values, queries, self.output.weight, bias, rows, targets, self.activation)
        ignored = targets == IGNORED
        targets = targets.masked_fill(ignored, 0)
        inputs = (values, queries, self.output.weight, bias, *rows, targets, self.activation)
        result: Tensor = _PairLogProb.apply(*inputs)  # type: ignore[no-untyped-call]
        return result.masked_fill(ignored, 0.0)

    @torch.no_grad()
    def among(self, values: Tensor, queries: Tensor, rows: tuple[Tensor, Tensor], words: Tensor) -> Tensor:
        """Logarithm of a softmax over a few words [B,C] of each example: [B,N,C].

        Pair n of example b reads values[b, rows[0][b,n]] and queries[b, rows[1][b,n]].

        It bounds log f from above, since the normaliser of a softmax is at least its part over a few words: the more
        of the likely words are among them, the less is missing. A word that comes twice counts once: −inf where it
        comes again.
        """
        (batch, count), width, stretch = rows[0].shape, queries.shape[2], self.activation.stretch
        weight = nn.functional.embedding(words, self.output.weight).mul_(stretch)  # [B,C,H]
        bias = weight.sum(-1).mul_((1 - stretch) / stretch)  # [B,C]
        if self.output.bias is not None:
            bias += self.output.bias[words]
        bias.masked_fill_(_first(words) < torch.arange(words.shape[1], device=words.device), -torch.inf)
        of_value, of_query = (
            row + torch.arange(batch, device=words.device)[:, None] * each.shape[1]
            for row, each in zip(rows, (values, queries), strict=True)
        )
        values, queries = (each.flatten(0, 1) * stretch for each in (values, queries))
        found = values.new_empty(batch, count, words.shape[1])
        size = max(1, BLOCK_ELEMENTS // (batch * max(width, words.shape[1])))
        for block in (slice(start, start + size) for start in range(0, count, size)):
            hidden = values.index_select(0, of_value[:, block].flatten())
            hidden.add_(queries.index_select(0, of_query[:, block].flatten()))
            hidden = self.activation.core(hidden).view(batch, -1, width)
            found[:, block] = torch.baddbmm(bias[:, None], hidden, weight.transpose(1, 2)).log_softmax(dim=-1)
        return found

    def upper_bound(self, values: Tensor, queries: Tensor, targets: Tensor, positions: Tensor) -> Tensor:
        """An upper bound of log f at positions [B,T,K] for the targets [B,T].

        The words of the same example are the ones that the other positions would rather say.
        """
        ignored = targets == IGNORED
        words = targets.masked_fill(ignored, 0)
        steps = torch.arange(words.shape[1], device=words.device)[:, None].expand_as(positions)
        found = self.among(values, queries, (positions.flatten(1), steps.flatten(1)), words)  # [B,T·K,T]
        own = _first(words)[:, :, None].expand_as(positions).flatten(1)
        found = found.gather(2, own[..., None]).view(positions.shape)
        return found.masked_fill_(ignored[..., None], 0.0)


def _first(words: Tensor) -> Tensor:
    """Where each word of a row comes for the first time: [B,C] -> [B,C]."""
    return (words[:, :, None] == words[:, None, :]).to(torch.uint8).argmax(dim=-1)


def _plain(
    values: Tensor,
    queries: Tensor,
    weight: Tensor,
    bias: Tensor,
    rows: tuple[Tensor, Tensor],
    targets: Tensor,
    activation: Activation,
) -> Tensor:
    """The same in plain operations: for second derivatives and for other devices."""
    hidden = activation.plain(values.index_select(0, rows[0]) + queries.index_select(0, rows[1]))
    return -nn.functional.cross_entropy(nn.functional.linear(hidden, weight, bias), targets, reduction="none")


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
    """Block by block; keeps the exponentials of the first blocks, within a budget, and computes the others again.

    The backward pass leaves out pairs whose upstream gradient is 0: whoever evaluates many and uses few pays for few.
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
        room = KEPT_ELEMENTS // width if any(ctx.needs_input_grad[:4]) else 0
        last = max((block.stop for block in blocks(count, width) if block.stop <= room), default=0)
        kept = values.new_empty(last, width)
        # what makes probabilities of the exponentials that were kept (a sum) or of logits (its logarithm)
        normalizer = values.new_empty(count, 1)
        buffer = _Buffer(values, width)
        for block in blocks(count, width):
            hidden = _hidden(values, queries, value_rows[block], query_rows[block], activation)
            keep = block.stop <= last
            place = kept[block] if keep else buffer.rows(hidden.shape[0])
            logits = torch.addmm(bias, hidden, weight.t(), out=place)
            picked = logits.gather(1, targets[block, None])
            largest = logits.amax(dim=1, keepdim=True)
            total = logits.sub_(largest).exp_().sum(dim=1, keepdim=True)
            shift = largest + total.log()
            result[block] = (picked - shift)[:, 0]
            normalizer[block] = total if keep else shift
        ctx.save_for_backward(values, queries, weight, bias, value_rows, query_rows, targets, normalizer)
        ctx.kept, ctx.activation = kept, activation
        return result

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        values, queries, weight, bias, value_rows, query_rows, targets, normalizer = ctx.saved_tensors
        activation, kept = ctx.activation, ctx.kept
        if torch.is_grad_enabled():  # somebody wants second derivatives
            inputs = [values, queries, weight, bias]
            wanted = [tensor for tensor, need in zip(inputs, ctx.needs_input_grad, strict=False) if need]
            result = _plain(values, queries, weight, bias, (value_rows, query_rows), targets, activation)
            found = iter(torch.autograd.grad(result, wanted, upstream, create_graph=True, allow_unused=True))
            return (*(next(found) if need else None for need in ctx.needs_input_grad[:4]), *(None,) * 4)
        slopes = [torch.zeros_like(tensor) for tensor in (values, queries, weight, bias)]
        live = upstream.nonzero()[:, 0]
        buffer = _Buffer(values, weight.shape[0])
        border = int((live < kept.shape[0]).sum())
        for number, pairs in _in_blocks((live[:border], live[border:]), weight.shape[0]):
            of_value, of_query = value_rows[pairs], query_rows[pairs]
            hidden = _hidden(values, queries, of_value, of_query, activation)
            scale = -upstream[pairs, None]
            probs = buffer.rows(pairs.shape[0])
            if number == 0:  # kept
                torch.index_select(kept, 0, pairs, out=probs)
                probs.mul_(scale / normalizer[pairs])
            else:
                torch.addmm(bias, hidden, weight.t(), out=probs)
                probs.sub_(normalizer[pairs]).exp_().mul_(scale)
            # gradient of the logits: upstream · (one-hot − probabilities)
            probs.scatter_add_(1, targets[pairs, None], -scale)
            slopes[2].addmm_(probs.t(), hidden)
            slopes[3].add_(probs.sum(dim=0))
            through = (probs @ weight).mul_(activation.slope(hidden))
            slopes[0].index_add_(0, of_value, through)
            slopes[1].index_add_(0, of_query, through)
        return (*slopes, *(None,) * 4)


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
    values: Tensor,
    queries: Tensor,
    value_rows: Tensor,
    query_rows: Tensor,
    activation: Activation,
) -> Tensor:
    return activation.in_place(values.index_select(0, value_rows).add_(queries.index_select(0, query_rows)))
