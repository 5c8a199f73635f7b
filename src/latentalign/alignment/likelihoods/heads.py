"""A head gives the distribution of outputs from contexts and queries; here any head, in chunks of bounded size."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.utils.checkpoint import checkpoint

from latentalign.alignment.checks import check_count
from latentalign.alignment.errors import ConfigError, ShapeError
from latentalign.alignment.precision import autocast_dtype, widened

# A head takes contexts [N,D] and queries [N,D'] and gives logits [N,V], or a torch Distribution of N outputs.
Head = Callable[[Tensor, Tensor], Tensor | Distribution]
Rows = tuple[Tensor, Tensor]  # of the values and of the queries that pairs read, [N] each

# output numbers of a pair, before the head has been seen to give fewer
UNKNOWN_WIDTH = 2**16


class PairwiseHead(ABC):
    """log f of many (value, query) pairs in memory that does not grow with their number."""

    # output numbers of one pair, and whether they are logits; None until the head has been called
    width: int | None = None
    has_logits: bool | None = None
    # whether pairs with an upstream gradient of 0 cost nothing in the backward pass
    is_lazy: bool = False
    # whether there is an `upper_bound`, by a normaliser over a shortlist of output values
    has_shortlists: bool = False

    @abstractmethod
    def __call__(self, context: Tensor, query: Tensor) -> Tensor | Distribution:
        """The distribution of outputs, as any head gives it."""

    @abstractmethod
    def log_prob(self, values: Tensor, queries: Tensor, rows: Rows, targets: Tensor) -> Tensor:
        """log f [N] of targets [N] where pair n reads values[rows[0][n]] and queries[rows[1][n]]."""

    def upper_bound(
        self,
        values: Tensor,
        queries: Tensor,
        targets: Tensor,
        positions: Tensor,
        others: Tensor | None = None,
    ) -> Tensor | None:
        """A cheap upper bound of log f at positions [B,T,K] for targets [B,T]; None where there is none.

        The more likely output values there are among `others` [B,C], the less it is above log f.
        """
        return None

    def mean_over_target(self, context: Tensor, query: Tensor, targets: Tensor) -> Tensor | None:
        """The mean logit less that of the target, […] for contexts and queries […,H]; None where it is not cheap."""
        return None


class ChunkedHead(PairwiseHead):
    """Any head. Requests beyond `max_elements` output numbers run in chunks.

    Chunks are computed again in the backward pass. How wide the outputs are is learnt from the first chunk: the head
    is never called for any other reason than to evaluate what was asked for.
    """

    def __init__(self, head: Head, *, width: int | None = None, max_elements: int = 2**24) -> None:
        check_count("max_elements", max_elements, hint="2**24 numbers are 64 MB in float32")
        self.head, self.width, self.max_elements = head, width, max_elements

    def chunks(self, count: int) -> Iterator[slice]:
        """`count` pairs as slices of nearly one size, so that none is left with a single pair.

        The size follows the width as soon as it is known. No pairs at all are one empty slice.
        """
        start, is_first = 0, True
        while start < count or is_first:
            most = max(1, self.max_elements // (self.width or UNKNOWN_WIDTH))
            pieces = max(1, -(-(count - start) // most))
            stop = start - (start - count) // pieces  # rounded up
            yield slice(start, stop)
            start, is_first = stop, False

    def log_prob(self, values: Tensor, queries: Tensor, rows: Rows, targets: Tensor) -> Tensor:
        def evaluate(value_rows: Tensor, query_rows: Tensor, targets: Tensor) -> Tensor:
            output = self(values.index_select(0, value_rows), queries.index_select(0, query_rows))
            return _log_prob(output, targets)

        count, found = targets.shape[0], []
        if count == 0:
            return values.new_zeros(0)
        for chunk in self.chunks(count):
            part = (rows[0][chunk], rows[1][chunk], targets[chunk])
            # the first chunk may be small, and may turn out to be one of few
            fits = self.width is None or count * self.width <= self.max_elements
            if fits or not torch.is_grad_enabled():
                found.append(evaluate(*part))
            else:
                found.append(checkpoint(evaluate, *part, use_reentrant=False))
        return torch.cat(found)

    def __call__(self, context: Tensor, query: Tensor) -> Tensor | Distribution:
        """The head itself, while noting what it gives."""
        output = self.head(context, query)
        self.has_logits = isinstance(output, Tensor)
        if isinstance(output, Tensor):
            if output.shape[:-1] != context.shape[:-1]:
                raise ShapeError(
                    f"likelihood: expected logits [N,V] for N={context.shape[0]} pairs, received "
                    f"{list(output.shape)}; keep the first axis and give one number for each output value"
                )
            self.width = output.shape[-1]
        else:
            self.width = (output.batch_shape + output.event_shape).numel() // max(1, context.shape[0])
        return output


def check_targets(targets: Tensor, width: int) -> None:
    """Refuse targets [N] that are no class of `width` logits."""
    if targets.is_floating_point() or targets.dim() != 1:
        raise ConfigError(
            "targets: expected whole numbers [B,T] for a head that gives logits, received "
            f"{targets.dtype} with {targets.dim() - 1} more axes; use targets.long(), or a head that returns a "
            "torch Distribution"
        )
    if targets.numel() == 0:
        return
    least, most = (int(end) for end in targets.aminmax())
    if least < 0 or most >= width:
        raise ConfigError(
            f"targets: expected whole numbers from 0 to {width - 1} as the head gives {width} logits, received "
            f"{least if least < 0 else most}; use -100 for an output that does not count"
        )


def _log_prob(output: Tensor | Distribution, targets: Tensor) -> Tensor:
    """Log probability of targets [N,…], [N]; computed in float32 at least."""
    if isinstance(output, Tensor):
        check_targets(targets, output.shape[1])
        logits = output.to(widened(output.dtype))
        found = -torch.nn.functional.cross_entropy(logits, targets, reduction="none")
        return found if autocast_dtype(output) else found.to(output.dtype)
    if not targets.is_floating_point() and _is_density(output):
        raise ConfigError(
            f"targets: expected floating-point numbers for a density ({type(output).__name__}), received "
            f"{targets.dtype}; use targets.float()"
        )
    log_prob = output.log_prob(targets)
    return log_prob.flatten(1).sum(dim=1) if log_prob.dim() > 1 else log_prob


def _is_density(distribution: Distribution) -> bool:
    try:
        return not distribution.support.is_discrete  # type: ignore[union-attr]
    except (NotImplementedError, AttributeError):
        return True
