"""The context itself as the latent variable: a Gaussian vector around what attention sees."""

from dataclasses import dataclass

import torch
from torch import Tensor

from latentalign.alignment.checks import check_shapes
from latentalign.alignment.errors import ConfigError
from latentalign.alignment.latents.categorical import Categorical
from latentalign.alignment.latents.continuous import Normal
from latentalign.alignment.likelihoods.likelihood import ContextLikelihood
from latentalign.alignment.precision import unrounded

_NO_POSITIONS = (
    "likelihood: a Gaussian context has no positions to enumerate or draw; use the estimator pathwise, and "
    "sample:N or soft to predict"
)


@dataclass(frozen=True)
class GaussianContext(Normal):
    """c ~ N(Σ_i a_i x_i, σ²): the mean is the context of ordinary attention a, from which links are read."""

    attention: Categorical  # [B,T,S]

    @classmethod
    def around(cls, attention: Categorical, values: Tensor, scale: Tensor) -> "GaussianContext":
        """Place the mean at the expected value under attention [B,T,S] over values [B,S,D]; scale [B,T,D]."""
        sizes = check_shapes(values=(values, "B S D"), scale=(scale, "B T D"))
        check_shapes(sizes, attention=(attention.probs, "B T S"))
        return cls(unrounded(torch.bmm(attention.probs, values)), unrounded(scale), attention)

    def alignment_probs(self) -> Tensor:
        return self.attention.probs

    def alignment_entropy(self) -> Tensor:
        return self.attention.entropy()

    def detach(self) -> "GaussianContext":
        return GaussianContext(self.loc.detach(), self.scale.detach(), self.attention.detach())


class VectorLikelihood(ContextLikelihood):
    """f(c): the same f as `ContextLikelihood`, but the latent is its context [B,T,D] and not a mixture of values."""

    @property
    def shape(self) -> torch.Size:
        return torch.Size((*self.queries.shape[:2], self.values.shape[2]))

    def contexts(self, z: Tensor) -> Tensor:
        sizes = {"B": self.queries.shape[0], "T": self.queries.shape[1], "D": self.values.shape[2]}
        check_shapes(sizes, z=(z, "B T D" if z.dim() == 3 else "K B T D"))
        return z

    def pairs(self, example: Tensor, step: Tensor, position: Tensor) -> Tensor:
        raise ConfigError(_NO_POSITIONS)

    def log_probs_pairs(self, example: Tensor, step: Tensor, position: Tensor) -> Tensor:
        raise ConfigError(_NO_POSITIONS)
