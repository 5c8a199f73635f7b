"""What a task hands to an objective for one batch; the objective never learns which task it was."""

from dataclasses import dataclass

import torch
from torch import Tensor

from latentalign.alignment.latents.latent import Latent
from latentalign.alignment.likelihoods.likelihood import Likelihood


@dataclass(frozen=True)
class AlignmentProblem:
    """A prior, a likelihood and (where asked for) a posterior over outputs of shape [B,T].

    `weights` say which outputs count (bool), or how much (float); all of them unless given. What comes after the last
    output that counts is padding: no step of a latent that remembers.

    Example:
        >>> from latentalign.alignment import Categorical, Marginal, TableLikelihood
        >>> prior = Categorical.from_scores(torch.zeros(1, 2, 3))
        >>> Marginal()(AlignmentProblem(prior, TableLikelihood(torch.zeros(1, 2, 3)))).value
        tensor([[0., 0.]])
    """

    prior: Latent
    likelihood: Likelihood
    weights: Tensor = None  # type: ignore[assignment]  # [B,T]; filled below
    posterior: Latent | None = None
    penalty: Tensor | None = None  # [B,T], added to the loss as it is

    def __post_init__(self) -> None:
        if self.weights is None:
            everything = torch.ones(self.prior.shape[:2], dtype=torch.bool, device=self.prior.device)
            object.__setattr__(self, "weights", everything)
            return
        object.__setattr__(self, "prior", self.prior.over_steps(self.steps))
        if self.posterior is not None:
            object.__setattr__(self, "posterior", self.posterior.over_steps(self.steps))

    @property
    def steps(self) -> Tensor:
        """The real steps, [B,T] bool: all up to the last one that counts."""
        counts = (self.weights > 0).flip(-1)
        return counts.cummax(dim=-1).values.flip(-1)
