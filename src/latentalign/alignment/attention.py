"""`LatentAttention`: attention that is a true latent variable, for one's own PyTorch model."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from latentalign.alignment.bound import Bound
from latentalign.alignment.checks import check_shapes
from latentalign.alignment.errors import ConfigError
from latentalign.alignment.latent import Latent
from latentalign.alignment.likelihood import ContextLikelihood, Head, Likelihood
from latentalign.alignment.metrics import exact_posterior
from latentalign.alignment.objectives import Objective
from latentalign.alignment.prediction import Predictor
from latentalign.alignment.problem import AlignmentProblem
from latentalign.alignment.registry import (
    Config,
    build_distribution,
    build_objective,
    build_score,
    parse_inference,
)


@dataclass(frozen=True)
class AttentionOutput:
    """What a call of `LatentAttention` gives back."""

    attention: Tensor  # [B,T,S]: the prior E_p[z]
    prior: Latent
    posterior: Latent | None = (
        None  # given targets: the inference network's; in evaluation else the exact one
    )
    loss: Tensor | None = None  # scalar, nats an output, to be minimised; where targets were given
    bound: Bound | None = None  # in training: the objective's parts, [B,T]
    log_probs: Tensor | None = None  # [B,T,V], in evaluation: the predictive distribution


class LatentAttention(nn.Module):
    """Drop-in attention over a memory, trained by any objective of the paper.

    In training mode a call needs `targets` and returns the loss; in evaluation mode it returns the predictive
    distribution by `inference` (and, given targets, the negative log-likelihood as loss).

    Args:
        query_dim: size of a query vector.
        memory_dim: size of a memory vector.
        objective: name or config, such as "marginal" or {"name": "variational", "estimator": "reinforce"}.
        inference: "exact", "kmax:K", "sample:N" or "soft", used in evaluation mode.
        score: "additive", "dot" or "general".
        hidden_dim: inner size of the additive score (default: query_dim).
        distribution: "categorical" (with a `normalizer`), "dirichlet" or "logistic-normal".
        inference_network: module (queries, memory, targets) -> posterior scores [B,T,S], for objectives that
            need a posterior; scores may be passed to the call instead.

    Example:
        >>> attend = LatentAttention(8, 8, objective="marginal")
        >>> output_layer = nn.Linear(8, 10)
        >>> f = lambda context, query: output_layer(context + query)
        >>> queries, memory = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
        >>> attend(queries, memory, f, targets=torch.zeros(2, 3, dtype=torch.long)).loss.shape
        torch.Size([])
        >>> attend.eval()(queries, memory, f).log_probs.shape
        torch.Size([2, 3, 10])
    """

    def __init__(
        self,
        query_dim: int,
        memory_dim: int,
        *,
        objective: Config | Objective = "marginal",
        inference: str | Predictor = "exact",
        score: str = "additive",
        hidden_dim: int | None = None,
        distribution: Config = "categorical",
        inference_network: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.score = build_score(score, query_dim, memory_dim, hidden_dim or query_dim)
        self.objective = objective if isinstance(objective, Objective) else build_objective(objective)
        self.objective_state = nn.ModuleList(self.objective.modules())
        self.predictor = parse_inference(inference) if isinstance(inference, str) else inference
        self.distribution = build_distribution(distribution)
        if inference_network is not None and not self.objective.needs_posterior:
            raise ConfigError(
                f"inference_network: objective {type(self.objective).__name__} takes none; drop it or choose "
                "variational, wake, rws or vimco"
            )
        self.inference_network = inference_network

    def forward(
        self,
        queries: Tensor,  # [B,T,Dq]
        memory: Tensor,  # [B,S,Dm]
        likelihood: Head,
        *,
        mask: Tensor | None = None,  # [B,S] or [B,T,S], True = real
        targets: Tensor | None = None,  # [B,T]
        weights: Tensor | None = None,  # [B,T], which outputs count
        posterior_scores: Tensor | None = None,  # [B,T,S]
        generator: torch.Generator | None = None,
    ) -> AttentionOutput:
        """Attend; `likelihood(context [N,Dm], query [N,Dq])` gives logits [N,V] or a torch Distribution."""
        check_shapes(queries=(queries, "B T Q"), memory=(memory, "B S M"))
        prior = self.distribution(self.score(queries, memory), mask)
        f = ContextLikelihood(likelihood, memory, queries, targets)
        if self.training:
            if targets is None:
                raise ConfigError(
                    "targets: expected the observed outputs [B,T] in training mode, received none; pass "
                    "targets=, or call eval() first to predict"
                )
            posterior = self._posterior(queries, memory, targets, mask, posterior_scores)
            bound = self.objective(_problem(prior, f, weights, posterior), generator=generator)
            return AttentionOutput(
                prior.mean(), prior, posterior, -_weighted_mean(bound.surrogate, weights), bound
            )
        posterior = None
        if targets is not None:
            posterior = self._posterior(queries, memory, targets, mask, posterior_scores)
            prior = _problem(prior, f, weights).prior  # knows which steps are real
            if posterior is None and prior.is_discrete:
                posterior = exact_posterior(prior, f)
        log_probs = self.predictor.log_probs(prior, f, generator=generator) if f.has_logits else None
        nll = None if targets is None else -self.predictor.score(prior, f, generator=generator)
        loss = None if nll is None else _weighted_mean(nll, weights)
        return AttentionOutput(prior.mean(), prior, posterior, loss, None, log_probs)

    def _posterior(
        self, queries: Tensor, memory: Tensor, targets: Tensor, mask: Tensor | None, scores: Tensor | None
    ) -> Latent | None:
        if scores is None and self.inference_network is not None:
            scores = self.inference_network(queries, memory, targets)
        if scores is None:
            return None
        return self.distribution(scores, mask).with_full_support(scores, mask)


def _problem(
    prior: Latent, likelihood: Likelihood, weights: Tensor | None, posterior: Latent | None = None
) -> AlignmentProblem:
    if weights is None:
        return AlignmentProblem(prior, likelihood, posterior=posterior)
    return AlignmentProblem(prior, likelihood, weights, posterior)


def _weighted_mean(values: Tensor, weights: Tensor | None) -> Tensor:
    if weights is None:
        return values.mean()
    check_shapes(values=(values, "B T"), weights=(weights, "B T"))
    total = weights.sum()
    if not bool(total > 0):
        raise ConfigError(
            f"weights: expected a positive sum, received {total.item():g}; drop a batch in which no output counts"
        )
    return (values * weights).sum() / total
