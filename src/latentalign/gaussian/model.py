"""A variational auto-encoder as an alignment problem: a Gaussian vector takes the place of the position."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from latentalign.alignment.errors import ConfigError
from latentalign.alignment.latents.continuous import Normal
from latentalign.alignment.learning.problem import AlignmentProblem
from latentalign.alignment.likelihoods.likelihood import Likelihood
from latentalign.alignment.prediction import Predictor
from latentalign.gaussian.digits import PIXELS, DigitBatch

# standard deviations of q are kept within e^±7
LOG_SCALE_LIMIT = 7.0


class PixelLikelihood(Likelihood):
    """log f(z) of black and white pictures under a decoder: independent Bernoulli pixels."""

    def __init__(self, decoder: nn.Module, pixels: Tensor) -> None:
        self.decoder, self.pixels = decoder, pixels  # [B,PIXELS]

    def mixture(self, z: Tensor) -> Tensor:
        """Latent vectors [(K,)B,1,D] -> [(K,)B,1]."""
        logits = self.decoder(z)  # [(K,)B,1,PIXELS]
        targets = self.pixels[:, None].expand_as(logits)
        return -functional.binary_cross_entropy_with_logits(logits, targets, reduction="none").sum(dim=-1)

    def pairs(self, example: Tensor, step: Tensor, position: Tensor) -> Tensor:
        raise ConfigError("likelihood: a Gaussian latent has no positions; use estimator pathwise")


class Encoder(nn.Module):
    """q(z|x): the recognition model."""

    def __init__(self, latent: int, hidden: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(PIXELS, hidden), nn.Tanh())
        self.loc = nn.Linear(hidden, latent)
        self.log_scale = nn.Linear(hidden, latent)

    def forward(self, pixels: Tensor) -> Normal:
        """[B,PIXELS] -> a Gaussian of shape [B,1,D]."""
        state = self.body(2 * pixels[:, None] - 1)
        scale = self.log_scale(state).clamp(-LOG_SCALE_LIMIT, LOG_SCALE_LIMIT).exp()
        return Normal(self.loc(state), scale)


class DigitModel(nn.Module):
    """Decoder p(x|z) with a unit Gaussian prior, and the encoder q(z|x) where an objective asks for it."""

    def __init__(self, latent: int, hidden: int, *, needs_posterior: bool = True, samples: int = 100) -> None:
        super().__init__()
        self.latent, self.samples = latent, samples
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.Tanh(), nn.Linear(hidden, PIXELS))
        self.encoder = Encoder(latent, hidden) if needs_posterior else None

    def theta(self) -> list[nn.Parameter]:
        return list(self.decoder.parameters())

    def phi(self) -> list[nn.Parameter]:
        return [] if self.encoder is None else list(self.encoder.parameters())

    def prior(self, batch: int) -> Normal:
        """The unit Gaussian for a batch: [B,1,D]."""
        zeros = next(self.decoder.parameters()).new_zeros(batch, 1, self.latent)
        return Normal(zeros, torch.ones_like(zeros))

    def example_prior(self) -> Normal:
        """A prior of one example, to see what kind it is."""
        return self.prior(1)

    def problem(self, batch: DigitBatch, *, with_posterior: bool = False) -> AlignmentProblem:
        posterior = None
        if with_posterior:
            assert self.encoder is not None
            posterior = self.encoder(batch.pixels)
        return AlignmentProblem(
            prior=self.prior(len(batch.pixels)),
            likelihood=PixelLikelihood(self.decoder, batch.pixels),
            weights=batch.pixels.new_ones(len(batch.pixels), 1),
            posterior=posterior,
        )

    def measures(
        self,
        batch: DigitBatch,
        problem: AlignmentProblem,
        predictor: Predictor,
        *,
        generator: torch.Generator | None = None,
    ) -> dict[str, tuple[float, float]]:
        """The marginal likelihood by importance sampling from q: far better than samples of the prior."""
        if problem.posterior is None:
            return {}
        values = importance_log_marginal(problem, self.samples, generator=generator)
        return {"importance_nll": (-float(values.sum()), float(values.numel()))}


@torch.no_grad()
def importance_log_marginal(
    problem: AlignmentProblem, samples: int, *, generator: torch.Generator | None = None, chunk: int = 100
) -> Tensor:
    """log p(x) ≈ log 1/K Σ_k p(x|z_k) p(z_k) / q(z_k|x) with z_k ~ q: [B,1]; a lower bound on average."""
    prior, posterior = problem.prior, problem.posterior
    assert isinstance(prior, Normal)
    assert isinstance(posterior, Normal)
    parts = []
    for start in range(0, samples, chunk):
        z = posterior.rsample(min(chunk, samples - start), generator)  # [K,B,1,D]
        parts.append(problem.likelihood.mixture(z) + prior.log_prob(z) - posterior.log_prob(z))
    return torch.cat(parts).logsumexp(dim=0) - math.log(samples)
