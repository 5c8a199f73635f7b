"""The categorical alignment: every step has a position of its own, independent of the others.

What every latent can do is in `latent.py`, alignments that remember are in `chain.py`, and the continuous families
(Dirichlet, logistic-normal, Gaussian) in `continuous.py`.
"""

from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from latentalign.alignment.checks import check_count, check_positive, check_shapes
from latentalign.alignment.errors import ConfigError, NonFiniteError
from latentalign.alignment.latents.latent import DiscreteLatent, Latent, LogTerms, Marginalised
from latentalign.alignment.latents.pruning import marginalise_pruned
from latentalign.alignment.likelihoods.likelihood import Likelihood
from latentalign.alignment.masks import (
    expand_mask,
    largest,
    masked_log_softmax,
    masked_logsumexp,
    zero_where_masked,
)
from latentalign.alignment.precision import unrounded


def check_finite(name: str, values: Tensor) -> None:
    if not bool(torch.isfinite(values).all()):
        bad = tuple((~torch.isfinite(values)).nonzero()[0].tolist())
        raise NonFiniteError(
            f"{name}: expected finite numbers at real positions, received {values[bad].item()} at "
            f"{list(bad)}; look for an overflow or a division by zero upstream"
        )


@dataclass(frozen=True)
class Categorical(DiscreteLatent):
    """A one-hot alignment. Build it with `from_scores` or `from_probs`.

    Example:
        >>> prior = Categorical.from_scores(torch.zeros(1, 1, 3), torch.tensor([[True, True, False]]))
        >>> prior.probs
        tensor([[[0.5000, 0.5000, 0.0000]]])
    """

    log_probs: Tensor  # [B,T,S], −inf off the support
    support: Tensor  # [B,T,S] bool: where the probability may be above 0
    family = "categorical"

    @property
    def shape(self) -> torch.Size:
        return self.log_probs.shape

    @classmethod
    def from_scores(
        cls, scores: Tensor, mask: Tensor | None = None, *, normalizer: str = "softmax"
    ) -> "Categorical":
        """Normalise scores [B,T,S] over the real positions of mask [B,S] or [B,T,S] (True = real).

        `sparsemax` and `entmax15` give most positions probability exactly 0, so that enumeration is sparse.
        """
        check_shapes(scores=(scores, "B T S"))
        mask = expand_mask(mask, scores)
        check_finite("scores", zero_where_masked(scores, mask))
        if normalizer == "softmax":
            return cls(masked_log_softmax(unrounded(scores), mask), mask)
        probs = _sparse_normalizer(normalizer)(unrounded(scores).masked_fill(~mask, -torch.inf), dim=-1)
        support = mask & (probs > 0)
        return cls(_log_on(probs, support), support)

    @classmethod
    def from_probs(cls, probs: Tensor, mask: Tensor | None = None) -> "Categorical":
        """Take given probabilities [B,T,S], for example links of another aligner; rows are normalised.

        mask [B,S] or [B,T,S]: True = a real position.
        """
        check_shapes(probs=(probs, "B T S"))
        mask = expand_mask(mask, probs)
        probs = zero_where_masked(probs, mask)
        check_finite("probs", probs)
        total = probs.sum(dim=-1, keepdim=True)
        if bool((probs < 0).any()) or not bool((total > 0).all()):
            raise ConfigError(
                "probs: expected numbers of at least 0 with a positive sum in every row, received "
                f"a smallest entry of {probs.min().item():g} and a smallest sum of {total.min().item():g}; "
                "use external_posterior for rows without a link"
            )
        support = probs > 0
        return cls(_log_on(probs / total, support), support)

    @cached_property
    def probs(self) -> Tensor:
        return self.log_probs.exp()

    def mean(self) -> Tensor:
        return self.probs

    def mode(self) -> Tensor:
        """The likeliest position, [B,T]."""
        return self.log_probs.argmax(dim=-1)

    def log_terms(self) -> LogTerms:
        return LogTerms(self.free_scores(), self.support)

    def expect(self, terms: LogTerms) -> Tensor:
        expected = (self.probs * terms.nodes).sum(dim=-1)
        if terms.pairs is None and terms.sources is None:
            return expected
        before = torch.cat([torch.zeros_like(self.probs[:, :1]), self.probs[:, :-1]], dim=1)  # [B,T,S]
        if terms.pairs is not None:
            expected = expected + (torch.matmul(before, terms.pairs) * self.probs).sum(dim=-1)
        if terms.sources is not None:
            expected = expected + (before * terms.sources).sum(dim=-1)
        return expected if terms.steps is None else zero_where_masked(expected, terms.steps)

    def marginalise(self, log_f: Tensor) -> Marginalised:
        joint = self.log_probs + log_f
        value = masked_logsumexp(joint, self.support)  # [B,T]
        posterior = partial(self.posterior, joint, value)
        return Marginalised(value, log_f.detach(), posterior)

    def posterior(self, joint: Tensor, value: Tensor) -> "Categorical":
        """p f / Σ p f from log p f [B,T,S] and the sum's log [B,T].

        Where no position can give the output (the sum is 0) nothing is learnt, and the prior remains.
        """
        log_probs = torch.where((value > -torch.inf)[..., None], joint - value[..., None], self.log_probs)
        possible = self.support & (log_probs > -torch.inf)
        return Categorical(log_probs.masked_fill(~possible, -torch.inf), possible)

    def marginalise_pruned(self, likelihood: Likelihood, prune: float) -> Marginalised:
        found = marginalise_pruned(self.log_probs, self.support, likelihood, prune)
        posterior = partial(self.posterior, found.log_joint, found.log_joint.logsumexp(dim=-1))
        return Marginalised(found.surrogate, found.log_f, posterior, found.evaluated, found.dropped)

    def predictive(self, likelihood: Likelihood, *, keep: int | None = None) -> "Categorical":
        return self if keep is None else self.restricted(self.support & largest(self.log_probs, keep))

    def sample(self, samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Positions, long [K,B,T]."""
        check_count("samples", samples, hint="draw one sample or more")
        batch, steps, positions = self.log_probs.shape
        flat = self.probs.detach().reshape(-1, positions)
        drawn = torch.multinomial(flat, samples, replacement=True, generator=generator)  # [B·T,K]
        return drawn.t().reshape(samples, batch, steps)

    def log_prob(self, positions: Tensor) -> Tensor:
        """Log probability of positions [K,B,T]: [K,B,T]."""
        table = self.log_probs.expand(positions.shape[0], *self.log_probs.shape)
        return table.gather(-1, positions[..., None])[..., 0]

    def relaxed_sample(
        self, samples: int, temperature: float, generator: torch.Generator | None = None
    ) -> Tensor:
        """Gumbel-softmax samples [K,B,T,S] on the simplex, exactly 0 off the support."""
        check_count("samples", samples, hint="draw one sample or more")
        check_positive("temperature", temperature, hint="the released code of the paper uses 0.1")
        shape = (samples, *self.log_probs.shape)
        uniform = torch.rand(
            shape, generator=generator, dtype=self.log_probs.dtype, device=self.log_probs.device
        )
        tiny = torch.finfo(uniform.dtype).tiny
        gumbel = -(-uniform.clamp_min(tiny).log()).clamp_min(tiny).log()
        return masked_log_softmax((self.log_probs + gumbel) / temperature, self.support.expand(shape)).exp()

    def within(self, prior: Latent) -> "Categorical":
        return self.restricted(prior.discrete("prior:", instead="build both with the same class").support)

    def restricted(self, support: Tensor) -> "Categorical":
        """Condition on a smaller support [B,T,S] (a sparse prior's): positions outside it get 0."""
        if support is self.support or bool((support | ~self.support).all()):
            return self
        both = self.support & support
        # a row that shares no position keeps the prior's support, evenly: the bound stays finite
        both = both | (support & ~both.any(dim=-1, keepdim=True))
        return Categorical(masked_log_softmax(self.free_scores(), both), both)

    def truncated(self, least: float) -> "Categorical":
        likely = self.probs.detach() > least
        return self.restricted(likely.scatter(-1, self.mode()[..., None], True))

    def free_scores(self) -> Tensor:
        return zero_where_masked(self.log_probs, self.support)

    def by_scores(self, scores: Tensor) -> "Categorical":
        return Categorical.from_scores(scores, self.support)

    def with_full_support(self, scores: Tensor, mask: Tensor | None) -> "Categorical":
        # a sparse normaliser is the prior's own: q must be able to move to every position
        return Categorical.from_scores(scores, mask)

    def detach(self) -> "Categorical":
        return Categorical(self.log_probs.detach(), self.support)


def external_posterior(links: Tensor, mask: Tensor | None = None, *, smoothing: float = 0.0) -> Categorical:
    """A fixed q from another aligner's link probabilities [B,T,S], in place of an inference network.

    Rows are normalised and mixed with `smoothing` of the uniform distribution over the real positions; a row
    without any link becomes uniform. mask [B,S] or [B,T,S]: True = a real position.
    """
    check_shapes(links=(links, "B T S"))
    if not 0 <= smoothing <= 1:
        raise ConfigError(f"smoothing: expected a number from 0 to 1, received {smoothing}; try 0.01")
    mask = expand_mask(mask, links)
    links = zero_where_masked(links, mask)
    total = links.sum(dim=-1, keepdim=True)
    uniform = mask.to(links.dtype) / mask.sum(dim=-1, keepdim=True)
    share = torch.where(total > 0, links / total.clamp_min(torch.finfo(links.dtype).tiny), uniform)
    return Categorical.from_probs((1 - smoothing) * share + smoothing * uniform, mask)


def _log_on(probs: Tensor, support: Tensor) -> Tensor:
    return probs.masked_fill(~support, 1.0).log().masked_fill(~support, -torch.inf)


def _sparse_normalizer(name: str):  # type: ignore[no-untyped-def]
    import entmax

    choices = {"sparsemax": entmax.sparsemax, "entmax15": entmax.entmax15}
    if name not in choices:
        raise ConfigError(
            f"normalizer: expected softmax, sparsemax or entmax15, received {name!r}; try softmax"
        )
    return choices[name]
