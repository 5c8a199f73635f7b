"""The exact marginal log Σ_z p(z) f(z) of a discrete latent, with f everywhere or at few positions."""

from latentalign.alignment.latents.latent import DiscreteLatent, Marginalised
from latentalign.alignment.likelihoods.likelihood import Likelihood


def exact_marginal(prior: DiscreteLatent, likelihood: Likelihood, *, prune: float = 0.0) -> Marginalised:
    """Marginalise over every position (prune = 0) or over those whose posterior probability can exceed `prune`."""
    likelihood.check_fit(prior.shape)
    if prune > 0:
        return prior.marginalise_pruned(likelihood, prune)
    return prior.marginalise(likelihood.everywhere(prior.support))
