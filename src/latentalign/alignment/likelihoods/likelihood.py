"""log f(x, z) of the observed outputs: at chosen positions, everywhere, or for a mixture; bounded memory."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from latentalign.alignment.checks import check_shapes
from latentalign.alignment.errors import ConfigError, NoOutputValues, ShapeError
from latentalign.alignment.likelihoods.heads import ChunkedHead, Head, PairwiseHead
from latentalign.alignment.precision import unrounded

IGNORED = -100  # a target that does not count, as in torch's cross entropy


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

    def mean_over_target(self, z: Tensor) -> Tensor:
        """The mean of log f(x, z) over all output values, less that of the observed one: [B,T,S] -> [B,T]."""
        return self.log_probs_mixture(z).mean(dim=-1) - self.mixture(z)

    def at(self, positions: Tensor) -> Tensor:
        """log f at one position for each output, [K,B,T] -> [K,B,T]."""
        samples, batch, steps = positions.shape
        example = torch.arange(batch, device=positions.device)[:, None].expand(samples, batch, steps)
        step = torch.arange(steps, device=positions.device).expand(samples, batch, steps)
        return self.pairs(example.reshape(-1), step.reshape(-1), positions.reshape(-1)).view_as(positions)

    def everywhere(self, mask: Tensor) -> Tensor:
        """log f at the True pairs of mask [B,T,S] (True = wanted), 0 elsewhere: only wanted pairs cost anything."""
        values = self.pairs(*mask.nonzero(as_tuple=True))
        return values.new_zeros(mask.shape).masked_scatter(mask, values)

    def by_shortlist(self, mean: Tensor, support: Tensor, *, size: int, steps: Tensor) -> Tensor:
        """log f on a support [B,T,S] with a normaliser over a shortlist of output values, 0 elsewhere; without a graph.

        The shortlist of an example is what it observes and the `size` likeliest values at the mixtures `mean` [B,T,S]
        of its `steps` [B,T]. The result is never below log f. It is log f itself if all output values are on the list,
        or if f has no such normaliser (here).
        """
        return self.detach().everywhere(support)

    def log_probs_pairs(self, example: Tensor, step: Tensor, position: Tensor) -> Tensor:
        """Log probabilities of every output value at N pairs: [N,V]."""
        raise NoOutputValues(type(self).__name__)

    def log_probs_mixture(self, z: Tensor) -> Tensor:
        """Log probabilities of every output value at mixtures z [B,T,S]: [B,T,V]."""
        raise NoOutputValues(type(self).__name__)

    def chunks(self, pairs: int) -> Iterator[slice]:
        """So many pairs in slices, of each of which the log probabilities of every output value may exist at once."""
        yield slice(0, pairs)

    def log_probs_expected(self, probs: Tensor) -> Tensor:
        """log Σ_i p_i f_i of every output value for probabilities [B,T,S], in chunks of bounded size: [B,T,V]."""
        batch, steps = probs.shape[:2]
        example, step, position = (probs > 0).nonzero(as_tuple=True)
        weight = probs[example, step, position]
        row = example * steps + step
        total: Tensor | None = None
        for chunk in self.chunks(len(row)):
            values = self.log_probs_pairs(example[chunk], step[chunk], position[chunk]).exp()  # [N,V]
            if total is None:
                total = values.new_zeros(batch * steps, values.shape[-1])
            total = total.index_add(0, row[chunk], values * weight[chunk, None].to(values.dtype))
        assert total is not None
        return total.clamp_min(torch.finfo(total.dtype).tiny).log().view(batch, steps, total.shape[-1])

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
    """f reads one context vector Σ_i z_i x_i and one query: ordinary attention.

    `values` [B,S,D] and `queries` [B,T,D'] may already be projected: a first layer that is linear in the
    context costs one product per position instead of one per pair, and a mixture of projections is the
    projection of the mixture.

    At most `max_elements` output numbers exist at a time, on any device and in any precision; larger requests run in
    chunks that are computed again in the backward pass, so memory does not grow with S × V. A `SoftmaxHead` works in
    blocks of its own. A head with dropout inside would draw anew for every pair: put dropout on values and queries
    instead.

    Targets are whole numbers [B,T] where the head gives logits, and floating-point numbers [B,T,…] where it gives a
    density. An output whose target is −100 (as in torch's cross entropy), or where `counted` [B,T] is False, does not
    count: f is taken as 1 there and is not evaluated.

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
        counted: Tensor | None = None,
        width: int | None = None,
        max_elements: int = 2**24,
    ) -> None:
        sizes = check_shapes(values=(values, "B S D"), queries=(queries, "B T Q"))
        if targets is not None and targets.shape[:2] != queries.shape[:2]:
            check_shapes(sizes, targets=(targets, "B T"))
        if counted is not None:
            check_shapes(sizes, counted=(counted, "B T"))
        self.head, self.values, self.queries = head, values, queries
        self.targets, self.counted = _split_targets(targets, counted)
        known = head if isinstance(head, PairwiseHead) else None
        self._chunked = ChunkedHead(head, width=known.width if known else width, max_elements=max_elements)
        self._pairwise = known or self._chunked

    @property
    def shape(self) -> torch.Size:
        return torch.Size((*self.queries.shape[:2], self.values.shape[1]))

    @property
    def width(self) -> int:
        """Output numbers of one pair."""
        if self._chunked.width is None:
            raise ConfigError("width: expected the number of output values, received none; pass width=")
        return self._chunked.width

    @property
    def has_logits(self) -> bool | None:
        """Whether the head gives logits, so that a predictive distribution over V values exists.

        None while nothing has been evaluated.
        """
        return self._pairwise.has_logits

    @property
    def is_probability(self) -> bool:
        return self.targets is not None and not self.targets.is_floating_point()

    @property
    def is_lazy(self) -> bool:
        return self._pairwise.is_lazy

    def pairs(self, example: Tensor, step: Tensor, position: Tensor) -> Tensor:
        rows = example * self.queries.shape[1] + step
        value_rows = example * self.values.shape[1] + position
        if self.counted is None:
            return self._log_prob(self.values, value_rows, rows)
        wanted = self.counted.flatten()[rows]
        found = self._log_prob(self.values, value_rows[wanted], rows[wanted])
        return found.new_zeros(rows.shape).masked_scatter(wanted, found)

    def everywhere(self, mask: Tensor) -> Tensor:
        return super().everywhere(mask if self.counted is None else mask & self.counted[..., None])

    def mixture(self, z: Tensor) -> Tensor:
        context = self.contexts(z)  # [(K,)B,T,D]
        steps = torch.arange(self.queries.shape[:2].numel(), device=z.device)
        rows = steps.view(self.queries.shape[:2]).expand(context.shape[:-1]).flatten()
        each = torch.arange(rows.shape[0], device=z.device)
        if self.counted is None:
            return self._log_prob(context, each, rows).view(z.shape[:-1])
        wanted = self.counted.flatten()[rows]
        found = self._log_prob(context, each[wanted], rows[wanted])
        return found.new_zeros(rows.shape).masked_scatter(wanted, found).view(z.shape[:-1])

    def mean_over_target(self, z: Tensor) -> Tensor:
        # normalisers cancel in the difference: a head that knows its mean logit writes nothing of size V
        gap = self._pairwise.mean_over_target(self.contexts(z), self.queries, self._need_targets())
        gap = super().mean_over_target(z) if gap is None else gap
        return gap if self.counted is None else gap.masked_fill(~self.counted, 0.0)

    def upper_bound(self, positions: Tensor) -> Tensor:
        targets = self._need_targets()
        found = self._pairwise.upper_bound(self.values, self.queries, targets, positions)
        if found is None:
            return super().upper_bound(positions)
        return found if self.counted is None else found.masked_fill(~self.counted[..., None], 0.0)

    @torch.no_grad()
    def by_shortlist(self, mean: Tensor, support: Tensor, *, size: int, steps: Tensor) -> Tensor:
        if not self._pairwise.has_shortlists:
            return super().by_shortlist(mean, support, size=size, steps=steps)
        positions = torch.arange(support.shape[-1], device=support.device).expand(support.shape)
        others = self._shortlist(mean, size, steps)
        found = self._pairwise.upper_bound(self.values, self.queries, self._need_targets(), positions, others)
        assert found is not None
        wanted = support if self.counted is None else support & self.counted[..., None]
        return found.masked_fill(~wanted, 0.0)

    def _shortlist(self, z: Tensor, size: int, steps: Tensor) -> Tensor:
        """The output values of the largest expected counts over an example's steps [B,T] at mixtures z: [B,size]."""
        example, step = steps.nonzero(as_tuple=True)
        contexts, queries = self.contexts(z)[example, step], self.queries[example, step]
        total = queries.new_zeros(len(steps), self.width, dtype=torch.float32)
        for chunk in self.chunks(len(example)):
            probs = self._log_probs(contexts[chunk], queries[chunk]).exp_()
            total.index_add_(0, example[chunk], probs.float())
        return total.topk(min(size, self.width), dim=-1).indices

    def log_probs_pairs(self, example: Tensor, step: Tensor, position: Tensor) -> Tensor:
        values = self.values.flatten(0, 1).index_select(0, example * self.values.shape[1] + position)
        queries = self.queries.flatten(0, 1).index_select(0, example * self.queries.shape[1] + step)
        return self._log_probs(values, queries)

    def log_probs_mixture(self, z: Tensor) -> Tensor:
        found = self._log_probs(self.contexts(z).flatten(0, 1), self.queries.flatten(0, 1))
        return found.view(*z.shape[:2], found.shape[-1])

    def contexts(self, z: Tensor) -> Tensor:
        """What f reads for points of the latent space: Σ_i z_i x_i, [B,T,S] -> [B,T,D] or with K in front."""
        sizes = {"B": self.values.shape[0], "T": self.queries.shape[1], "S": self.values.shape[1]}
        check_shapes(sizes, z=(z, "B T S" if z.dim() == 3 else "K B T S"))
        return torch.matmul(z, self.values)

    def chunks(self, pairs: int) -> Iterator[slice]:
        return self._chunked.chunks(pairs)

    def _need_targets(self) -> Tensor:
        if self.targets is None:
            raise ConfigError("targets: expected the observed outputs [B,T], received none; pass targets=")
        return self.targets

    def _log_prob(self, values: Tensor, value_rows: Tensor, rows: Tensor) -> Tensor:
        """log f of pairs of flat rows, [N]; values […,D]."""
        targets = self._need_targets().flatten(0, 1).index_select(0, rows)
        pairs = (value_rows, rows)
        return self._pairwise.log_prob(values.flatten(0, -2), self.queries.flatten(0, 1), pairs, targets)

    def _log_probs(self, context: Tensor, query: Tensor) -> Tensor:
        output = self._chunked(context, query)
        if not isinstance(output, Tensor):
            raise NoOutputValues(f"a head that returns a {type(output).__name__}")
        return unrounded(output).log_softmax(dim=-1)


class _WithoutGraph(Likelihood):
    """The same numbers as `inner`, computed without a graph: for steps that are not differentiated in f."""

    def __init__(self, inner: Likelihood) -> None:
        self.inner = inner

    @property
    def shape(self) -> torch.Size | None:
        return self.inner.shape

    @property
    def is_probability(self) -> bool:
        return self.inner.is_probability

    @property
    def is_lazy(self) -> bool:
        return self.inner.is_lazy

    def upper_bound(self, positions: Tensor) -> Tensor:
        return self.inner.upper_bound(positions)

    def by_shortlist(self, mean: Tensor, support: Tensor, *, size: int, steps: Tensor) -> Tensor:
        return self.inner.by_shortlist(mean, support, size=size, steps=steps)

    @torch.no_grad()
    def pairs(self, example: Tensor, step: Tensor, position: Tensor) -> Tensor:
        return self.inner.pairs(example, step, position)

    @torch.no_grad()
    def everywhere(self, mask: Tensor) -> Tensor:
        return self.inner.everywhere(mask)

    @torch.no_grad()
    def mixture(self, z: Tensor) -> Tensor:
        return self.inner.mixture(z)


def _split_targets(targets: Tensor | None, counted: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Targets that can be evaluated, and which outputs count; None where all do."""
    if targets is not None and not targets.is_floating_point():
        ignored = targets == IGNORED
        targets = targets.long()
        if bool(ignored.any()):
            targets = targets.masked_fill(ignored, 0)
            ignored = ignored.flatten(2).all(dim=2) if ignored.dim() > 2 else ignored
            counted = ~ignored if counted is None else counted & ~ignored
    return targets, None if counted is None or bool(counted.all()) else counted
