"""What a task hands to a trainer for one batch; the trainer never learns which task it was."""

from dataclasses import dataclass

from torch import Tensor

from latentalign.alignment.distributions import Latent
from latentalign.alignment.likelihood import Likelihood


@dataclass(frozen=True)
class AlignmentProblem:
    """A prior, a likelihood and (where asked for) a posterior over outputs of shape [B,T]."""

    prior: Latent
    likelihood: Likelihood
    weights: Tensor  # [B,T]: which outputs count (bool), or how much (float)
    posterior: Latent | None = None
    penalty: Tensor | None = None  # [B,T], added to the loss as it is
