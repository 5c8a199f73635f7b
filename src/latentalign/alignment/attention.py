"""`LatentAttention`: attention that is a true latent variable, for one's own PyTorch model."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from latentalign.alignment.checks import check_shapes
from latentalign.alignment.errors import ConfigError, NoOutputValues, ShapeError
from latentalign.alignment.latents.latent import Latent
from latentalign.alignment.learning.bound import Bound
from latentalign.alignment.learning.objectives import Objective
from latentalign.alignment.learning.problem import AlignmentProblem
from latentalign.alignment.likelihoods.heads import Head, check_targets
from latentalign.alignment.likelihoods.likelihood import ContextLikelihood
from latentalign.alignment.masks import zero_where_masked
from latentalign.alignment.metrics import exact_posterior
from latentalign.alignment.precision import autocast_dtype
from latentalign.alignment.prediction import Predictor
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
    # of the given scores or the inference network; else, in evaluation and given targets, the exact one
    posterior: Latent | None = None
    # scalar, nats an output that counts, to be minimised; where targets were given
    loss: Tensor | None = None
    bound: Bound | None = None  # in training: the objective's parts, [B,T]
    # [B,T,V], in evaluation: the predictive distribution of a head with logits
    log_probs: Tensor | None = None


class LatentAttention(nn.Module):
    """Drop-in attention over a memory, trained by any objective of the paper.

    In training mode a call needs `targets` and returns the loss; in evaluation mode it returns the predictive
    distribution by `inference` (and, given targets, the negative log-likelihood as loss).

    Args:
        query_dim: size of a query vector.
        memory_dim: size of a memory vector.
        objective: name or config, such as "marginal" or {"name": "variational", "estimator": "reinforce"}. Where it
            names no estimator, a continuous distribution takes "pathwise".
        inference: "exact", "kmax:K", "sample:N" or "soft", used in evaluation mode. By default "exact", and "sample"
            for a continuous distribution.
        score: "additive", "dot" or "general".
        hidden_dim: inner size of the additive score (default: query_dim).
        distribution: "categorical" (with a `normalizer`), "dirichlet" or "logistic-normal", or a chain as `transitions`
            makes it, with options: {"name": "chain", "transitions": "jump", "width": 3}.
        transitions: "jump" (learnt scores of the distance from the position before), "monotone" (never back) or
            "strictly-monotone" make the alignment of a sequence a chain; None: the outputs are independent.
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
        inference: str | Predictor | None = None,
        score: str = "additive",
        hidden_dim: int | None = None,
        distribution: Config = "categorical",
        transitions: str | None = None,
        inference_network: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if transitions is not None:
            distribution = _chain(distribution, transitions)
        self.query_dim, self.memory_dim = query_dim, memory_dim
        self.score = build_score(score, query_dim, memory_dim, hidden_dim or query_dim)
        self.distribution = build_distribution(distribution)
        is_discrete = self.distribution(torch.zeros(1, 1, 1), None).is_discrete
        estimator = None if is_discrete else "pathwise"
        self.objective = build_objective(objective, estimator=estimator)
        self.objective_state = nn.ModuleList(self.objective.modules())
        # q has jumps of its own; what is learnt of them belongs to it
        self.posterior_distribution = (
            build_distribution(distribution) if self.objective.needs_posterior else None
        )
        inference = inference or ("exact" if is_discrete else "sample")
        self.predictor = parse_inference(inference) if isinstance(inference, str) else inference
        if inference_network is not None and not self.objective.needs_posterior:
            raise ConfigError(
                f"inference_network: objective {type(self.objective).__name__} takes none; drop it or choose "
                "variational, wake, rws or vimco"
            )
        self.inference_network = inference_network

    def forward(
        self,
        queries: Tensor,
        memory: Tensor,
        likelihood: Head,
        *,
        mask: Tensor | None = None,
        targets: Tensor | None = None,
        weights: Tensor | None = None,
        posterior_scores: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> AttentionOutput:
        """Attend.

        Args:
            queries: [B,T,Dq].
            memory: [B,S,Dm].
            likelihood: a function (context [N,Dm], query [N,Dq]) -> logits [N,V] or a torch Distribution of N outputs.
            mask: [B,S] or [B,T,S] bool, True = a real position. This is the opposite of torch's `key_padding_mask`,
                where True is padding.
            targets: the observed outputs, whole numbers [B,T] (−100 = does not count, as in torch's cross entropy), or
                floating-point numbers [B,T,…] for a density.
            weights: [B,T], which outputs count (bool) or how much (numbers of at least 0); all alike by default. The
                loss is the mean under these weights. Where the weight is 0 the target is not looked at: f is 1 there.
            posterior_scores: [B,T,S] scores of q, for objectives that need a posterior.
            generator: makes samples repeatable.
        """
        self._check(queries, memory, posterior_scores)
        prior = self.distribution(self.score(queries, memory), mask)
        if weights is None:
            weights = torch.ones(queries.shape[:2], dtype=torch.bool, device=queries.device)
        f = ContextLikelihood(likelihood, memory, queries, targets, counted=_checked(weights, queries) > 0)
        if f.counted is not None:  # an ignored target weighs nothing
            weights = weights * f.counted
        if self.inference_network is not None and posterior_scores is None and f.targets is not None:
            posterior_scores = self.inference_network(queries, memory, f.targets)
        posterior = self._posterior(posterior_scores, mask)
        problem = AlignmentProblem(prior, f, weights, posterior)
        if self.training:
            if targets is None:
                raise ConfigError(
                    "targets: expected the observed outputs [B,T] in training mode, received none; pass "
                    "targets=, or call eval() first to predict"
                )
            bound = self.objective(problem, generator=generator)
            loss = -_mean(bound.surrogate, problem.weights)
            return AttentionOutput(prior.mean(), prior, posterior, loss, bound)
        prior = problem.prior  # knows which steps are real
        if targets is not None and posterior is None and prior.is_discrete:
            posterior = exact_posterior(prior, f)
        log_probs, scores = self._predict(prior, f, generator)
        nll = None if scores is None else -_mean(scores, problem.weights)
        return AttentionOutput(prior.mean(), prior, posterior, nll, None, log_probs)

    def _posterior(self, scores: Tensor | None, mask: Tensor | None) -> Latent | None:
        """q by its scores, where there are any and the objective takes them."""
        if scores is None or self.posterior_distribution is None:
            return None
        posterior: Latent = self.posterior_distribution(scores, mask)
        return posterior.with_full_support(scores, mask)

    def _predict(
        self, prior: Latent, f: ContextLikelihood, generator: torch.Generator | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Log probabilities of every output value, where there are such, and of the targets: by the same samples."""
        if f.targets is not None and f.targets.is_floating_point():
            return None, self.predictor.log_likelihood(prior, f, generator=generator)
        try:
            log_probs = self.predictor.log_probs(prior, f, generator=generator)
        except NoOutputValues:  # counts, or a density
            if f.targets is None:
                return None, None
            return None, self.predictor.log_likelihood(prior, f, generator=generator)
        if f.targets is None:
            return log_probs, None
        check_targets(f.targets.flatten(), log_probs.shape[-1])
        return log_probs, log_probs.gather(-1, f.targets[..., None])[..., 0]

    def _check(self, queries: Tensor, memory: Tensor, posterior_scores: Tensor | None) -> None:
        sizes = {"Q": self.query_dim, "M": self.memory_dim}
        check_shapes(sizes, queries=(queries, "B T Q"), memory=(memory, "B S M"))
        if memory.shape[1] == 0:
            raise ShapeError(
                f"memory: expected at least one position, received {list(memory.shape)}; an output has to read "
                "something"
            )
        expected = next((parameter.dtype for parameter in self.score.parameters()), queries.dtype)
        for name, tensor in (("queries", queries), ("memory", memory)):
            mixed = tensor.dtype != expected and autocast_dtype(tensor) is None
            if mixed or not tensor.is_floating_point():
                raise ConfigError(
                    f"{name}: expected {expected} as the layer's, received {tensor.dtype}; use .to({expected}) on "
                    "the tensor or on the layer"
                )
        if posterior_scores is not None and not self.objective.needs_posterior:
            raise ConfigError(
                f"posterior_scores: objective {type(self.objective).__name__} takes none; drop them or choose "
                "variational, wake, rws or vimco"
            )


def _chain(distribution: Config, transitions: str) -> Config:
    if distribution != "categorical":
        raise ConfigError(
            f"transitions: expected the distribution categorical beside them, received {distribution!r}; a chain has "
            'its options in {"name": "chain", "transitions": …, "width": …}'
        )
    return {"name": "chain", "transitions": transitions}


def _checked(weights: Tensor, queries: Tensor) -> Tensor:
    """Weights of outputs as numbers; NaN, infinite and negative ones refused."""
    check_shapes(queries=(queries, "B T Q"), weights=(weights, "B T"))
    fine = (weights >= 0) & (weights < torch.inf)
    if not bool(fine.all()):
        wrong = weights[~fine][0].item()
        raise ConfigError(
            f"weights: expected finite numbers of at least 0, received {wrong:g}; use 0 for an output that does "
            "not count"
        )
    return weights


def _mean(values: Tensor, weights: Tensor) -> Tensor:
    """The mean of values [B,T] under weights [B,T]."""
    total = weights.sum()
    if not bool(total > 0):
        raise ConfigError(
            f"weights: expected a positive sum over {list(values.shape)} outputs, received {total.item():g}; drop "
            "a batch in which no output counts"
        )
    # an output that does not count must not bring its infinity in
    return (zero_where_masked(values, weights > 0) * weights.to(values.dtype)).sum() / total.to(values.dtype)
