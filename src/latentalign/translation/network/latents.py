"""What is latent in a step of the translator: an alignment, one that remembers the step before, or the context seen.

All take the same scores and give a distribution together with the likelihood that reads its draws, so the model and
the inference network hold one of them and never ask which. One and the same class makes the prior (its weights belong
to θ) and the posterior (its weights belong to φ).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from latentalign.alignment.chains.chain import Chain
from latentalign.alignment.chains.filtering import predict
from latentalign.alignment.chains.movement import build_transitions
from latentalign.alignment.checks import check_positive
from latentalign.alignment.errors import ConfigError
from latentalign.alignment.latents.categorical import Categorical
from latentalign.alignment.latents.context import GaussianContext, VectorLikelihood
from latentalign.alignment.latents.latent import Latent
from latentalign.alignment.likelihoods.likelihood import ContextLikelihood
from latentalign.alignment.likelihoods.softmax_head import SoftmaxHead
from latentalign.alignment.registry import DISTRIBUTIONS, choose_part

# of a Gaussian context: without noise the bound would be that of soft attention, and its KL ∞
MINIMUM_SCALE = 0.01
TRANSITIONS = ("jump", "monotone")


class LatentVariable(nn.Module, ABC):
    """Makes distributions of what is latent, and the likelihood that reads it."""

    remembers = False  # whether a step depends on where the step before was

    @abstractmethod
    def forward(self, scores: Tensor, queries: Tensor, values: Tensor, mask: Tensor | None) -> Latent:
        """The distribution of all steps by scores [B,T,S], queries [B,T,Q] and values [B,S,H]."""

    def step(
        self, scores: Tensor, queries: Tensor, values: Tensor, mask: Tensor, belief: Tensor | None
    ) -> Latent:
        """One step of T = W hypotheses a sentence; `belief` [B,W,S] is log p of where each was before."""
        distribution: Latent = self(scores, queries, values, mask)
        return distribution

    @abstractmethod
    def attention(self, scores: Tensor, mask: Tensor) -> Tensor:
        """The attention of each step by its scores alone, [B,T,S]: the context of input feeding."""

    def likelihood(
        self, head: SoftmaxHead, values: Tensor, queries: Tensor, targets: Tensor | None, *, width: int
    ) -> ContextLikelihood:
        """f(x, z) for values [B,S,H], queries [B,T,H] and targets [B,T]."""
        return ContextLikelihood(head, values, queries, targets, width=width)

    @abstractmethod
    def example(self) -> Latent:
        """A distribution over one position, to see what kind it is."""

    @classmethod
    def build(cls, *, query_size: int, size: int, **options: Any) -> "LatentVariable":
        """One with the options of a recipe, for queries [B,T,query_size] and contexts of `size` features."""
        return cls(**options)


class LatentAlignment(LatentVariable):
    """z is an alignment, one position or a mixture of them; it has no weights beyond the scores'."""

    def __init__(self, distribution: Callable[[Tensor, Tensor | None], Latent]) -> None:
        super().__init__()
        self.distribution = distribution

    def forward(self, scores: Tensor, queries: Tensor, values: Tensor, mask: Tensor | None) -> Latent:
        return self.distribution(scores, mask)

    def attention(self, scores: Tensor, mask: Tensor) -> Tensor:
        return self.distribution(scores, mask).mean()

    def example(self) -> Latent:
        return self.distribution(torch.zeros(1, 1, 1), None)


class LatentChain(LatentVariable):
    """z is an alignment whose steps are one chain: p(z_t = i | z_(t−1) = k) ∝ exp(s_t(i) + r(k, i)).

    `transitions` is jump (a learnt score for every distance up to ± `width`, learnt `rate` times as fast as other
    weights) or monotone (only forwards, or staying).
    """

    remembers = True

    def __init__(self, *, transitions: str = "jump", width: int = 10, rate: float = 10.0) -> None:
        super().__init__()
        if transitions not in TRANSITIONS:
            raise ConfigError(
                f"transitions: expected {' or '.join(TRANSITIONS)}, received {transitions!r}; a translation may be "
                "longer than its source, so it has to be able to stay"
            )
        self.transitions = build_transitions(transitions, width, rate=rate)

    def forward(self, scores: Tensor, queries: Tensor, values: Tensor, mask: Tensor | None) -> Chain:
        return Chain.from_scores(scores, mask, transitions=self.transitions(scores.shape[-1]))

    def step(
        self, scores: Tensor, queries: Tensor, values: Tensor, mask: Tensor, belief: Tensor | None
    ) -> Categorical:
        """π, the distribution of this step given where each hypothesis was; without a belief it is the first."""
        mask = mask[:, None].expand_as(scores)
        log_probs = predict(belief, scores, self.transitions(scores.shape[-1]), mask=mask)
        return Categorical(log_probs, log_probs > -torch.inf)

    def attention(self, scores: Tensor, mask: Tensor) -> Tensor:
        return Categorical.from_scores(scores, mask).probs

    def example(self) -> Chain:
        return self(*(torch.zeros(1, 1, 1) for _ in range(3)), None)


class LatentContext(LatentVariable):
    """The context is latent: N(Σ_i a_i x_i, σ²) in the space that f reads, a = softmax of the scores.

    The deviation is learnt from the query, feature by feature: σ = minimum + softplus(V x̃ + b), near `scale`
    before training.
    """

    def __init__(
        self, query_size: int, size: int, *, scale: float = 0.1, normalizer: str = "softmax"
    ) -> None:
        super().__init__()
        check_positive("scale", scale, hint="contexts are of size 1 or so; try 0.1")
        self.scale = nn.Linear(query_size, size)
        self.normalizer = normalizer
        # a constant and no bias: whatever initialises the weights, the noise starts small
        self.shift = math.log(math.expm1(max(scale - MINIMUM_SCALE, MINIMUM_SCALE)))

    def forward(
        self, scores: Tensor, queries: Tensor, values: Tensor, mask: Tensor | None
    ) -> GaussianContext:
        """The distribution [B,T,H] by scores [B,T,S] over values [B,S,H] and queries [B,T,Q]."""
        attention = Categorical.from_scores(scores, mask, normalizer=self.normalizer)
        scale = MINIMUM_SCALE + F.softplus(self.scale(queries) + self.shift)  # [B,T,H]
        return GaussianContext.around(attention, values, scale)

    def attention(self, scores: Tensor, mask: Tensor) -> Tensor:
        return Categorical.from_scores(scores, mask, normalizer=self.normalizer).probs

    def likelihood(
        self, head: SoftmaxHead, values: Tensor, queries: Tensor, targets: Tensor | None, *, width: int
    ) -> VectorLikelihood:
        return VectorLikelihood(head, values, queries, targets, width=width)

    def example(self) -> GaussianContext:
        weight = self.scale.weight  # [H,Q]
        zeros = [weight.new_zeros(1, 1, size) for size in (1, weight.shape[1], weight.shape[0])]
        return self(*zeros, None)

    @classmethod
    def build(cls, *, query_size: int, size: int, **options: Any) -> "LatentContext":
        return cls(query_size, size, **options)


# besides the distributions of the registry, which are alignments without weights of their own
LATENTS: dict[str, type[LatentVariable]] = {"chain": LatentChain, "gaussian-context": LatentContext}


def build_latent(config: str | dict[str, Any], *, query_size: int, size: int) -> LatentVariable:
    """What `model.alignment` names, for queries [B,T,query_size] and contexts of `size` features."""
    name, options = choose_part(
        "alignment", {**DISTRIBUTIONS, **LATENTS}, config, skip=("scores", "mask", "query_size", "size")
    )
    if name in DISTRIBUTIONS:
        return LatentAlignment(partial(DISTRIBUTIONS[name], **options))
    return LATENTS[name].build(query_size=query_size, size=size, **options)


def check_latent(config: str | dict[str, Any]) -> None:
    """Raise ConfigError where `build_latent` would."""
    with torch.random.fork_rng(devices=[]):  # weights of no consequence
        build_latent(config, query_size=1, size=1).example()
