"""log f(x, z) of the observed outputs: at chosen positions, everywhere, or for a mixture; bounded memory."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.utils.checkpoint import checkpoint

from latentalign.alignment.checks import check_count, check_shapes
from latentalign.alignment.errors import ConfigError, ShapeError
from latentalign.alignment.softmax_head import SoftmaxHead

# A head takes contexts [N,D] and queries [N,D'] and gives logits [N,V], or a torch Distribution of N outputs.
Head = Callable[[Tensor, Tensor], Tensor | Distribution]

_NO_VALUES = (
    "has no finite set of output values to predict over; ask for the score of observed outputs instead"
)


class Likelihood(ABC):
    """log f(x, z)_y for outputs y of shape [B,T]. Objectives see a model only through this."""

    @property
    def shape(self) -> torch.Size | None:
        """[B,T,S] of the alignments it takes; None where that is not known."""
        return None

    @property
    def is_probability(self) -> bool:
        """Whether f ≤ 1 is known (outputs are discrete): pruning skips positions on the strength of it."""
        return False

    def upper_bound(self, positions: Tensor) -> Tensor:
        """A number ≥ log f at positions [B,T,K], for a small part of what log f costs: [B,T,K], without a graph.

        +inf where nothing is known of f (a density).
        """
        limit = 0.0 if self.is_probability else torch.inf
        return torch.full(positions.shape, limit, device=positions.device)

    @property
    def is_lazy(self) -> bool:
        """Whether pairs with an upstream gradient of 0 cost nothing in the backward pass.

        Then the pairs that matter may be chosen after all have been evaluated, and none is evaluated twice.
        """
        return False

    def check_fit(self, prior: torch.Size) -> None:
        """Refuse alignments over another memory: a position beyond it would read the next example's."""
        if self.shape is not None and prior != self.shape:
            raise ShapeError(
                f"prior: expected shape {list(self.shape)} as the likelihood's [B,T,S], received "
                f"{list(prior)}; check that both see the same memory"
            )

    @abstractmethod
    def pairs(self, example: Tensor, step: Tensor, position: Tensor) -> Tensor:
        """log f at N chosen pairs, given as three long tensors [N]: [N]."""

    @abstractmethod
    def mixture(self, z: Tensor) -> Tensor:
        """log f(x, z) at points of the simplex, [B,T,S] -> [B,T] or [K,B,T,S] -> [K,B,T]."""

    def at(self, positions: Tensor) -> Tensor:
        """log f at one position for each output, [K,B,T] -> [K,B,T]."""
        samples, batch, steps = positions.shape
        example = torch.arange(batch, device=positions.device)[:, None].expand(samples, batch, steps)
        step = torch.arange(steps, device=positions.device).expand(samples, batch, steps)
        return self.pairs(example.reshape(-1), step.reshape(-1), positions.reshape(-1)).view_as(positions)

    def everywhere(self, mask: Tensor) -> Tensor:
        """log f at the True pairs of mask [B,T,S], 0 elsewhere: only real pairs cost anything."""
        values = self.pairs(*mask.nonzero(as_tuple=True))
        return values.new_zeros(mask.shape).masked_scatter(mask, values)

    def log_probs_pairs(self, example: Tensor, step: Tensor, position: Tensor) -> Tensor:
        """Log probabilities of every output value at N pairs: [N,V]."""
        raise ConfigError(f"likelihood: {type(self).__name__} {_NO_VALUES}")

    def log_probs_mixture(self, z: Tensor) -> Tensor:
        """Log probabilities of every output value at mixtures z [B,T,S]: [B,T,V]."""
        raise ConfigError(f"likelihood: {type(self).__name__} {_NO_VALUES}")

    def log_probs_expected(self, probs: Tensor) -> Tensor:
        """log Σ_i p_i f_i of every output value for probabilities [B,T,S], in chunks of bounded size: [B,T,V]."""
        batch, steps = probs.shape[:2]
        example, step, position = (probs > 0).nonzero(as_tuple=True)
        weight = probs[example, step, position]
        row = example * steps + step
        size = self.pairs_at_once or len(row)
        total: Tensor | None = None
        for start in range(0, len(row), size):
            chunk = slice(start, start + size)
            values = self.log_probs_pairs(example[chunk], step[chunk], position[chunk]).exp()  # [N,V]
            if total is None:
                total = values.new_zeros(batch * steps, values.shape[-1])
            total = total.index_add(0, row[chunk], values * weight[chunk, None].to(values.dtype))
        assert total is not None
        return total.clamp_min(torch.finfo(total.dtype).tiny).log().view(batch, steps, -1)

    @property
    def pairs_at_once(self) -> int | None:
        """Pairs whose output values may exist at a time; None = any number."""
        return None

    def detach(self) -> "Likelihood":
        """The same likelihood without a graph."""
        return _WithoutGraph(self)


class TableLikelihood(Likelihood):
    """log f as a given table [B,T,S]; mixtures are not defined for it."""

    def __init__(self, table: Tensor) -> None:
        check_shapes(table=(table, "B T S"))
        self.table = table

    @property
    def shape(self) -> torch.Size:
        return self.table.shape

    @property
    def is_probability(self) -> bool:
        return bool((self.table <= 0).all())

    def pairs(self, example: Tensor, step: Tensor, position: Tensor) -> Tensor:
        return self.table[example, step, position]

    def everywhere(self, mask: Tensor) -> Tensor:
        return self.table.masked_fill(~mask, 0.0)

    def mixture(self, z: Tensor) -> Tensor:
        raise ConfigError(
            "likelihood: a table knows single positions only; use an enumerating or sampling estimator with "
            "baseline none, running-mean or leave-one-out"
        )

    def detach(self) -> "TableLikelihood":
        return TableLikelihood(self.table.detach())


class ContextLikelihood(Likelihood):
    """f reads one context vector Σ_i z_i x_i and one query: attention as everybody knows it.

    `values` [B,S,D] and `queries` [B,T,D'] may already be projected: a first layer that is linear in the
    context costs one product per position instead of one per pair, and a mixture of projections is the
    projection of the mixture.

    At most `max_elements` output numbers exist at a time; larger requests run in chunks that are computed
    again in the backward pass, so memory does not grow with S × V. A `SoftmaxHead` goes further: it works in
    cache-sized blocks. A head with dropout inside would draw
    anew for every pair: put dropout on values and queries instead.

    Example:
        >>> head = torch.nn.Linear(4, 10)
        >>> values, queries = torch.randn(2, 5, 4), torch.randn(2, 3, 4)
        >>> targets = torch.zeros(2, 3, dtype=torch.long)
        >>> f = ContextLikelihood(lambda x, q: head(torch.tanh(x + q)), values, queries, targets)
        >>> f.at(torch.zeros(1, 2, 3, dtype=torch.long)).shape
        torch.Size([1, 2, 3])
    """

    def __init__(
        self,
        head: Head,
        values: Tensor,
        queries: Tensor,
        targets: Tensor | None = None,
        *,
        width: int | None = None,
        max_elements: int = 2**24,
    ) -> None:
        sizes = check_shapes(values=(values, "B S D"), queries=(queries, "B T Q"))
        if targets is not None and targets.shape[:2] != queries.shape[:2]:
            check_shapes(sizes, targets=(targets, "B T"))
        check_count("max_elements", max_elements, hint="2**24 numbers are 64 MB in float32")
        self.head, self.values, self.queries, self.targets = head, values, queries, targets
        self.max_elements = max_elements
        self._width = width
        self._has_logits: bool | None = None

    @property
    def shape(self) -> torch.Size:
        return torch.Size((*self.queries.shape[:2], self.values.shape[1]))

    @property
    def width(self) -> int:
        """Output numbers of one pair; probed once where the caller did not say."""
        if self._width is None:
            probe = self._probe()
            self._width = probe.shape[-1] if isinstance(probe, Tensor) else self.values.shape[-1]
        return self._width

    @property
    def pairs_at_once(self) -> int:
        return max(1, self.max_elements // self.width)

    @property
    def has_logits(self) -> bool:
        """Whether the head gives logits, so that a predictive distribution over V values exists."""
        if self._has_logits is None:
            self._has_logits = isinstance(self.head, SoftmaxHead) or isinstance(self._probe(), Tensor)
        return self._has_logits

    @property
    def is_probability(self) -> bool:
        return self.has_logits

    @property
    def is_lazy(self) -> bool:
        return isinstance(self.head, SoftmaxHead) and self.head.is_lazy(self.values)

    def _probe(self) -> Tensor | Distribution:
        with torch.no_grad():
            return self.head(self.values[:1, 0], self.queries[:1, 0])

    def pairs(self, example: Tensor, step: Tensor, position: Tensor) -> Tensor:
        self._need_targets()
        if isinstance(self.head, SoftmaxHead):
            return self._blockwise(
                self.values, example * self.values.shape[1] + position, self._row(example, step)
            )
        return self._in_chunks(self._pair_log_prob, example, step, position)

    def upper_bound(self, positions: Tensor) -> Tensor:
        if not (isinstance(self.head, SoftmaxHead) and self.is_lazy):
            return super().upper_bound(positions)
        self._need_targets()
        assert self.targets is not None
        return self.head.upper_bound(self.values, self.queries, self.targets, positions)

    def mixture(self, z: Tensor) -> Tensor:
        self._need_targets()
        context = self.contexts(z).flatten(0, -2)  # [(K·)B·T,D]
        batch, steps = self.queries.shape[:2]
        row = torch.arange(batch * steps, device=z.device).repeat(context.shape[0] // (batch * steps))
        if isinstance(self.head, SoftmaxHead):
            each = torch.arange(context.shape[0], device=z.device)
            return self._blockwise(context[None], each, row).view(z.shape[:-1])
        return self._in_chunks(self._context_log_prob, context, row).view(z.shape[:-1])

    def log_probs_pairs(self, example: Tensor, step: Tensor, position: Tensor) -> Tensor:
        return self._log_probs(self._gather_values(example, position), self._gather_queries(example, step))

    def log_probs_mixture(self, z: Tensor) -> Tensor:
        context = self.contexts(z).flatten(0, 1)
        return self._log_probs(context, self.queries.flatten(0, 1)).view(*z.shape[:2], -1)

    def contexts(self, z: Tensor) -> Tensor:
        """What f reads for points of the latent space: Σ_i z_i x_i, [B,T,S] -> [B,T,D] or with K in front."""
        sizes = {"B": self.values.shape[0], "T": self.queries.shape[1], "S": self.values.shape[1]}
        check_shapes(sizes, z=(z, "B T S" if z.dim() == 3 else "K B T S"))
        return torch.matmul(z, self.values)

    def _need_targets(self) -> None:
        if self.targets is None:
            raise ConfigError("targets: expected the observed outputs [B,T], received none; pass targets=")

    def _gather_values(self, example: Tensor, position: Tensor) -> Tensor:
        return self.values.flatten(0, 1).index_select(0, example * self.values.shape[1] + position)

    def _gather_queries(self, example: Tensor, step: Tensor) -> Tensor:
        return self.queries.flatten(0, 1).index_select(0, self._row(example, step))

    def _row(self, example: Tensor, step: Tensor) -> Tensor:
        return example * self.queries.shape[1] + step

    def _blockwise(self, values: Tensor, value_rows: Tensor, rows: Tensor) -> Tensor:
        """log f of pairs of flat rows, by the head's own blocks; values [·,·,D]."""
        assert isinstance(self.head, SoftmaxHead)
        assert self.targets is not None
        targets = self.targets.flatten().index_select(0, rows)
        return self.head.log_prob(
            values.flatten(0, 1), self.queries.flatten(0, 1), (value_rows, rows), targets
        )

    def _pair_log_prob(self, example: Tensor, step: Tensor, position: Tensor) -> Tensor:
        return self._context_log_prob(self._gather_values(example, position), self._row(example, step))

    def _context_log_prob(self, context: Tensor, row: Tensor) -> Tensor:
        """Log probability of the observed outputs number `row` [N] given contexts [N,D]."""
        assert self.targets is not None
        queries = self.queries.flatten(0, 1).index_select(0, row)
        return _log_prob(self.head(context, queries), self.targets.flatten(0, 1).index_select(0, row))

    def _log_probs(self, context: Tensor, query: Tensor) -> Tensor:
        output = self.head(context, query)
        if not isinstance(output, Tensor):
            raise ConfigError(f"likelihood: a head that returns a {type(output).__name__} {_NO_VALUES}")
        return output.log_softmax(dim=-1)

    def _in_chunks(self, function: Callable[..., Tensor], *rows: Tensor) -> Tensor:
        count = rows[0].shape[0]
        size = self.pairs_at_once
        if count <= size:
            return function(*rows)
        pieces = []
        for chunk in _chunks(rows, size):
            if torch.is_grad_enabled():
                pieces.append(checkpoint(function, *chunk, use_reentrant=False))
            else:
                pieces.append(function(*chunk))
        return torch.cat(pieces)


class _WithoutGraph(Likelihood):
    def __init__(self, inner: Likelihood) -> None:
        self.inner = inner

    @property
    def shape(self) -> torch.Size | None:
        return self.inner.shape

    @property
    def is_probability(self) -> bool:
        return self.inner.is_probability

    def upper_bound(self, positions: Tensor) -> Tensor:
        return self.inner.upper_bound(positions)

    def pairs(self, example: Tensor, step: Tensor, position: Tensor) -> Tensor:
        with torch.no_grad():
            return self.inner.pairs(example, step, position)

    def mixture(self, z: Tensor) -> Tensor:
        with torch.no_grad():
            return self.inner.mixture(z)


def _chunks(rows: tuple[Tensor, ...], size: int) -> Iterator[tuple[Tensor, ...]]:
    for start in range(0, rows[0].shape[0], size):
        yield tuple(row[start : start + size] for row in rows)


def _log_prob(output: Tensor | Distribution, target: Tensor) -> Tensor:
    if isinstance(output, Tensor):
        return -torch.nn.functional.cross_entropy(output, target, reduction="none")
    log_prob = output.log_prob(target)
    return log_prob.flatten(1).sum(dim=1) if log_prob.dim() > 1 else log_prob
