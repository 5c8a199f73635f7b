"""Continuous latents: relaxed alignments (Dirichlet, logistic-normal) and the Gaussian vector.

In half precision they compute in float32 and return the dtype of their parameters; within autocast they are float32.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property, wraps
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from latentalign.alignment.checks import check_count, check_shapes
from latentalign.alignment.errors import ConfigError
from latentalign.alignment.latents.categorical import check_finite
from latentalign.alignment.latents.latent import ContinuousLatent, Latent
from latentalign.alignment.masks import expand_mask, masked_log_softmax, zero_where_masked
from latentalign.alignment.precision import unrounded, widened

# exp(scores) of a Dirichlet is kept within e^±10: beyond it, gammas and digammas lose their digits
CONCENTRATION_LIMIT = 10.0


Method = TypeVar("Method", bound=Callable[..., Tensor])


def _in_float32(method: Method) -> Method:
    """Compute in float32 where the parameters are in half precision, and return their dtype."""

    @wraps(method)
    def wider(self: Any, *arguments: Any, **options: Any) -> Tensor:
        dtype = getattr(self, fields(self)[0].name).dtype
        if widened(dtype) == dtype:
            return method(self, *arguments, **options)
        return method(*map(_to_float32, (self, *arguments)), **options).to(dtype)

    return cast("Method", wider)


def _to_float32(argument: object) -> object:
    if isinstance(argument, Tensor) and argument.is_floating_point():
        return argument.float()
    if isinstance(argument, ContinuousLatent):
        latent: Any = argument
        return replace(
            latent, **{part.name: _to_float32(getattr(latent, part.name)) for part in fields(latent)}
        )
    return argument


def _relaxed_scores(scores: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Scores [B,T,S] that are 0 where masked, and the mask as [B,T,S]."""
    check_shapes(scores=(scores, "B T S"))
    mask = expand_mask(mask, scores)
    scores = zero_where_masked(scores, mask)
    check_finite("scores", scores)
    return unrounded(scores), mask


class RelaxedAlignment(ContinuousLatent):
    """z is a mixture of positions: a point of the simplex over those that are not masked."""

    mask: Tensor  # [B,T,S] bool

    def _sum(self, terms: Tensor) -> Tensor:
        """Over the real positions: [B,T,S] -> [B,T]."""
        return zero_where_masked(terms, self.mask).sum(dim=-1)

    def alignment_entropy(self) -> Tensor:
        """Of the discrete alignment that E[z] implies."""
        return torch.special.entr(self.mean()).sum(dim=-1)


@dataclass(frozen=True)
class Dirichlet(RelaxedAlignment):
    """A relaxed alignment: a mixture of positions. Masked positions get exactly 0."""

    concentration: Tensor  # [B,T,S]; ignored where masked
    mask: Tensor  # [B,T,S] bool

    @property
    def shape(self) -> torch.Size:
        return self.concentration.shape

    @classmethod
    def from_scores(cls, scores: Tensor, mask: Tensor | None = None) -> "Dirichlet":
        """Concentration exp(score), as in the paper; scores are kept within ±10.

        mask [B,S] or [B,T,S]: True = a real position.
        """
        scores, mask = _relaxed_scores(scores, mask)
        return cls(scores.clamp(-CONCENTRATION_LIMIT, CONCENTRATION_LIMIT).exp(), mask)

    @cached_property
    def _real(self) -> Tensor:
        return zero_where_masked(self.concentration, self.mask)

    @_in_float32
    def mean(self) -> Tensor:
        return self._real / self._real.sum(dim=-1, keepdim=True)

    @_in_float32
    def entropy(self) -> Tensor:
        """Differential entropy on the simplex, [B,T]."""
        alpha = self.concentration.masked_fill(~self.mask, 1.0)
        total, count = self._real.sum(dim=-1), self.mask.sum(dim=-1)
        normaliser = self._sum(alpha.lgamma()) - total.lgamma()
        return normaliser + (total - count) * total.digamma() - self._sum((alpha - 1) * alpha.digamma())

    @_in_float32
    def kl(self, other: Latent) -> Tensor:
        self.check_family(other)
        assert isinstance(other, Dirichlet)
        mine = self.concentration.masked_fill(~self.mask, 1.0)
        theirs = other.concentration.masked_fill(~self.mask, 1.0)
        total, other_total = self._real.sum(dim=-1), other._real.sum(dim=-1)
        slopes = (mine - theirs) * (mine.digamma() - total.digamma()[..., None])
        return (
            total.lgamma()
            - other_total.lgamma()
            + self._sum(theirs.lgamma() - mine.lgamma())
            + self._sum(slopes)
        )

    @_in_float32
    def rsample(self, samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Normalised masked Gammas; gradients by implicit differentiation, as torch gives them."""
        check_count("samples", samples, hint="draw one sample or more")
        alpha = self.concentration.masked_fill(~self.mask, 1.0)
        gammas = torch._standard_gamma(alpha.expand(samples, *alpha.shape).contiguous(), generator=generator)
        gammas = zero_where_masked(gammas.clamp_min(torch.finfo(alpha.dtype).tiny), self.mask)
        return gammas / gammas.sum(dim=-1, keepdim=True)

    @_in_float32
    def log_prob(self, z: Tensor) -> Tensor:
        alpha = self.concentration.masked_fill(~self.mask, 1.0)
        terms = torch.xlogy(alpha - 1, z.masked_fill(~self.mask, 1.0))
        return self._sum(terms) + self._real.sum(dim=-1).lgamma() - self._sum(alpha.lgamma())

    def detach(self) -> "Dirichlet":
        return Dirichlet(self.concentration.detach(), self.mask)


@dataclass(frozen=True)
class LogisticNormal(RelaxedAlignment):
    """softmax(u) with u Gaussian, independent over positions: the other relaxed alignment.

    softmax forgets a constant added to all of u, so densities live on the differences u_i − u_j. With
    precisions λ_i = 1/σ_i², Gaussians on that quotient space have closed forms in O(S):
    the squared length of v is Σ λ v² − (Σ λ v)²/Σ λ and the determinant ∏ σ² · Σ λ.
    """

    loc: Tensor  # [B,T,S]
    scale: Tensor  # [B,T,S]
    mask: Tensor  # [B,T,S] bool

    @property
    def shape(self) -> torch.Size:
        return self.loc.shape

    @classmethod
    def from_scores(
        cls, scores: Tensor, mask: Tensor | None = None, *, scale: float | Tensor = 1.0
    ) -> "LogisticNormal":
        """Location = score; `scale` is a number or broadcasts to [B,T,S].

        mask [B,S] or [B,T,S]: True = a real position.
        """
        scores, mask = _relaxed_scores(scores, mask)
        scale = torch.as_tensor(scale, dtype=scores.dtype, device=scores.device).expand_as(scores)
        if not bool((scale > 0).all()):
            raise ConfigError(f"scale: expected numbers above 0, received {scale.min().item():g}; try 1.0")
        return cls(scores, scale, mask)

    def _square(self, difference: Tensor) -> Tensor:
        # Σ λ v² − (Σ λ v)²/Σ λ, centred first: a difference of squares would drown in a common shift
        precision = self.scale**-2
        centre = self._sum(precision * difference) / self._sum(precision.expand_as(self.loc))
        return self._sum(precision * (difference - centre[..., None]) ** 2)

    def _log_determinant(self) -> Tensor:
        return 2 * self._sum(self.scale.log()) + self._sum(self.scale**-2).log()

    @_in_float32
    def mean(self) -> Tensor:
        """E[softmax(u)] to the accuracy of the probit approximation: there is no closed form."""
        shrunk = self.loc / (1 + math.pi / 8 * self.scale**2).sqrt()
        return masked_log_softmax(shrunk, self.mask).exp()

    @_in_float32
    def kl(self, other: Latent) -> Tensor:
        self.check_family(other)
        assert isinstance(other, LogisticNormal)
        precision, variance = other.scale**-2, self.scale**2
        weight = other._sum(precision)
        trace = other._sum(precision * variance) - other._sum(precision**2 * variance) / weight
        degrees = self.mask.sum(dim=-1) - 1
        square = other._square(self.loc - other.loc)
        return 0.5 * (trace + square - degrees + other._log_determinant() - self._log_determinant())

    @_in_float32
    def rsample(self, samples: int, generator: torch.Generator | None = None) -> Tensor:
        check_count("samples", samples, hint="draw one sample or more")
        noise = torch.randn(
            (samples, *self.loc.shape), generator=generator, dtype=self.loc.dtype, device=self.loc.device
        )
        return masked_log_softmax(self.loc + self.scale * noise, self.mask.expand_as(noise)).exp()

    @_in_float32
    def log_prob(self, z: Tensor) -> Tensor:
        logs = z.masked_fill(~self.mask, 1.0).log()
        degrees = self.mask.sum(dim=-1) - 1
        constant = degrees * math.log(2 * math.pi) + self._log_determinant()
        return -0.5 * (self._square(logs - self.loc) + constant) - self._sum(logs)

    def detach(self) -> "LogisticNormal":
        return LogisticNormal(self.loc.detach(), self.scale.detach(), self.mask)


@dataclass(frozen=True)
class Normal(ContinuousLatent):
    """A Gaussian latent vector z = μ + σ⊙ε, independent over its D features."""

    loc: Tensor  # [B,T,D]
    scale: Tensor  # [B,T,D], above 0
    family = "Gaussian"

    @property
    def shape(self) -> torch.Size:
        return self.loc.shape

    @classmethod
    def standard_like(cls, other: "Normal") -> "Normal":
        """The unit Gaussian of the same shape: the usual prior."""
        return Normal(torch.zeros_like(other.loc), torch.ones_like(other.scale))

    def mean(self) -> Tensor:
        return self.loc

    @_in_float32
    def entropy(self) -> Tensor:
        return (self.scale.log() + 0.5 * math.log(2 * math.pi * math.e)).sum(dim=-1)

    def alignment_probs(self) -> Tensor:
        raise ConfigError(
            "alignment: expected a latent over positions, received a Gaussian vector, which aligns to none; "
            "use GaussianContext for one that attention places"
        )

    def alignment_entropy(self) -> Tensor:
        """A vector aligns to nothing: this is its differential entropy."""
        return self.entropy()

    @_in_float32
    def kl(self, other: Latent) -> Tensor:
        self.check_family(other)
        assert isinstance(other, Normal)
        ratio = (self.scale / other.scale) ** 2
        shift = ((self.loc - other.loc) / other.scale) ** 2
        return 0.5 * (ratio + shift - 1 - ratio.log()).sum(dim=-1)

    @_in_float32
    def rsample(self, samples: int, generator: torch.Generator | None = None) -> Tensor:
        check_count("samples", samples, hint="draw one sample or more")
        noise = torch.randn(
            (samples, *self.loc.shape), generator=generator, dtype=self.loc.dtype, device=self.loc.device
        )
        return self.loc + self.scale * noise

    @_in_float32
    def log_prob(self, z: Tensor) -> Tensor:
        square = ((z - self.loc) / self.scale) ** 2
        return -(0.5 * square + self.scale.log() + 0.5 * math.log(2 * math.pi)).sum(dim=-1)

    def detach(self) -> "Normal":
        return Normal(self.loc.detach(), self.scale.detach())
