"""Choices that do not exist or do not fit together: each is refused with an explanation."""

import math

import pytest
import torch

from latentalign.alignment import (
    AlignmentProblem,
    Categorical,
    ConfigError,
    ContextLikelihood,
    Dirichlet,
    Dot,
    Elbo,
    Enumerate,
    Exact,
    GumbelSoftmax,
    Hard,
    KMax,
    LeaveOneOut,
    LogisticNormal,
    Marginal,
    Normal,
    Pathwise,
    Reinforce,
    ReweightedWakeSleep,
    RunningMean,
    Sampled,
    Soft,
    SoftBaseline,
    StochasticEM,
    StochasticVI,
    TableLikelihood,
    Vimco,
    Wake,
    alignment_error_rate,
    external_posterior,
    proposition1,
)
from tests.alignment import problems
from tests.alignment.mistakes import Mistake, assert_explained

PROBLEM = problems.make(0, lengths=(3, 2), steps=2)
PRIOR, POSTERIOR, F = PROBLEM.prior(), PROBLEM.posterior(), PROBLEM.likelihood()
RELAXED = Dirichlet.from_scores(PROBLEM.prior_scores, PROBLEM.mask)
TABLE = TableLikelihood(torch.zeros(2, 2, 3, dtype=torch.float64))
ZEROS = torch.zeros(2, 2, 3)


def gaussian() -> ContextLikelihood:
    def head(context: torch.Tensor, query: torch.Tensor) -> torch.distributions.Distribution:
        return torch.distributions.Normal(context[:, 0] + query[:, 0], 1.0)

    return ContextLikelihood(head, PROBLEM.values, PROBLEM.queries, PROBLEM.targets.double())


def f_of(targets: torch.Tensor) -> torch.Tensor:
    f = ContextLikelihood(PROBLEM.head, PROBLEM.values, PROBLEM.queries, targets)
    return f.everywhere(PRIOR.support)


CHOICES: dict[str, Mistake] = {
    "no samples, reinforce": (lambda: Reinforce(samples=0), ConfigError, ["samples", "at least 1", "0"]),
    "no samples, gumbel": (lambda: GumbelSoftmax(samples=0), ConfigError, ["samples", "at least 1", "0"]),
    "no samples, pathwise": (lambda: Pathwise(samples=-2), ConfigError, ["samples", "at least 1", "-2"]),
    "no samples, rws": (lambda: ReweightedWakeSleep(samples=0), ConfigError, ["samples", "at least 1", "0"]),
    "one sample, vimco": (lambda: Vimco(samples=1), ConfigError, ["samples", "at least 2", "1", "two"]),
    "a sample and a half": (lambda: Reinforce(samples=1.5), ConfigError, ["samples", "whole number", "1.5"]),
    "sample(0)": (lambda: PRIOR.sample(0), ConfigError, ["samples", "at least 1", "0"]),
    "relaxed_sample(0)": (lambda: PRIOR.relaxed_sample(0, 1.0), ConfigError, ["samples", "at least 1", "0"]),
    "rsample(0) of a vector": (
        lambda: Normal(torch.zeros(1, 1, 2), torch.ones(1, 1, 2)).rsample(0),
        ConfigError,
        ["samples", "at least 1", "0"],
    ),
    "rsample(0)": (lambda: RELAXED.rsample(0), ConfigError, ["samples", "at least 1", "0"]),
    "k of kmax": (lambda: KMax(0), ConfigError, ["k:", "at least 1", "0"]),
    "n of sample": (lambda: Sampled(0), ConfigError, ["n:", "at least 1", "0"]),
    "temperature 0": (lambda: GumbelSoftmax(temperature=0.0), ConfigError, ["temperature", "above 0", "0.0"]),
    "temperature -1": (
        lambda: GumbelSoftmax(temperature=-1.0),
        ConfigError,
        ["temperature", "above 0", "-1.0"],
    ),
    "temperature nan": (
        lambda: GumbelSoftmax(temperature=math.nan),
        ConfigError,
        ["temperature", "above 0", "nan", "0.1"],
    ),
    "temperature of a sample": (
        lambda: PRIOR.relaxed_sample(1, 0.0),
        ConfigError,
        ["temperature", "above 0", "0.0"],
    ),
    "leave-one-out of one": (
        lambda: Reinforce(samples=1, baseline=LeaveOneOut()),
        ConfigError,
        ["samples", "at least 2", "LeaveOneOut", "received 1", "raise it"],
    ),
    "prune of one": (lambda: Marginal(prune=1.0), ConfigError, ["prune", "1.0", "0.01"]),
    "prune below zero": (lambda: Enumerate(prune=-0.1), ConfigError, ["prune", "-0.1", "0.01"]),
    "prune of wake": (lambda: Wake(prune=2.0), ConfigError, ["prune", "2.0", "0.01"]),
    "no shortlist": (lambda: StochasticEM(shortlist=0), ConfigError, ["shortlist", "at least 1", "0"]),
    "no steps": (lambda: StochasticVI(steps=0), ConfigError, ["steps", "at least 1", "0"]),
    "no learning rate": (
        lambda: StochasticVI(learning_rate=0.0),
        ConfigError,
        ["learning_rate", "above 0", "0.0"],
    ),
    "unknown start": (
        lambda: StochasticVI(start="middle"),
        ConfigError,
        ["start", "prior", "posterior", "middle"],
    ),
    "decay of one": (lambda: RunningMean(decay=1.0), ConfigError, ["decay", "1.0", "0.99"]),
    "scale of zero": (
        lambda: LogisticNormal.from_scores(ZEROS, scale=0.0),
        ConfigError,
        ["scale", "above 0", "0"],
    ),
    "unknown normaliser": (
        lambda: Categorical.from_scores(ZEROS, normalizer="maxout"),
        ConfigError,
        ["normalizer", "softmax, sparsemax", "maxout", "try softmax"],
    ),
    "negative probabilities": (
        lambda: Categorical.from_probs(ZEROS + torch.tensor([0.5, 0.7, -0.999])),
        ConfigError,
        ["probs", "at least 0", "-0.999"],
    ),
    "a row without probability": (
        lambda: Categorical.from_probs(ZEROS),
        ConfigError,
        ["probs", "positive sum", "sum of 0", "external_posterior"],
    ),
    "smoothing above one": (
        lambda: external_posterior(ZEROS, smoothing=1.5),
        ConfigError,
        ["smoothing", "1.5"],
    ),
    "chunk of nothing": (
        lambda: ContextLikelihood(PROBLEM.head, PROBLEM.values, PROBLEM.queries, max_elements=0),
        ConfigError,
        ["max_elements", "at least 1", "0", "2**24"],
    ),
    "grid of one": (lambda: proposition1(PRIOR, F, grid=1), ConfigError, ["grid", "at least 2", "1"]),
    "dot of two sizes": (lambda: Dot(3, 4), ConfigError, ["dot", "one size", "3 and 4", "general"]),
    "links of other sentences": (
        lambda: alignment_error_rate([set()], [set(), set()]),
        ConfigError,
        ["links", "one set a sentence", "1 predicted, 2 sure", "belong together"],
    ),
}

COMBINATIONS: dict[str, Mistake] = {
    "soft without a mixture": (
        lambda: Soft()(AlignmentProblem(PRIOR, TABLE)),
        ConfigError,
        ["likelihood", "table", "enumerating"],
    ),
    "soft baseline without a mixture": (
        lambda: Hard(Reinforce(baseline=SoftBaseline()))(AlignmentProblem(PRIOR, TABLE)),
        ConfigError,
        ["likelihood", "table", "baseline none"],
    ),
    "no targets": (
        lambda: Marginal()(
            AlignmentProblem(PRIOR, ContextLikelihood(PROBLEM.head, PROBLEM.values, PROBLEM.queries))
        ),
        ConfigError,
        ["targets", "observed outputs", "none", "pass targets="],
    ),
    "fractions for logits": (
        lambda: f_of(PROBLEM.targets.double()),
        ConfigError,
        ["targets", "whole numbers [B,T]", "logits", "float64 with 0 more axes", "targets.long()"],
    ),
    "several whole numbers for logits": (
        lambda: f_of(PROBLEM.targets[..., None]),
        ConfigError,
        ["targets", "whole numbers [B,T]", "int64 with 1 more axes", "Distribution"],
    ),
    "a value beyond the logits": (
        lambda: f_of(torch.full_like(PROBLEM.targets, 3)),
        ConfigError,
        ["targets", "from 0 to 2", "3 logits", "received 3", "-100"],
    ),
    "a value below 0": (
        lambda: f_of(torch.full_like(PROBLEM.targets, -1)),
        ConfigError,
        ["targets", "from 0 to 2", "received -1", "-100"],
    ),
    "one row without a link": (
        lambda: Categorical.from_probs(torch.tensor([[[1.0, 0.0], [0.0, 0.0]]])),
        ConfigError,
        ["probs", "a positive sum in every row", "a smallest sum of 0", "external_posterior"],
    ),
    "enumerate a relaxed latent": (
        lambda: Hard()(AlignmentProblem(RELAXED, F)),
        ConfigError,
        ["estimator", "enumerate expected a discrete alignment", "Dirichlet", "pathwise"],
    ),
    "reinforce a relaxed latent": (
        lambda: Hard(Reinforce())(AlignmentProblem(RELAXED, F)),
        ConfigError,
        ["estimator", "reinforce expected a discrete alignment", "Dirichlet"],
    ),
    "gumbel of a relaxed latent": (
        lambda: Hard(GumbelSoftmax())(AlignmentProblem(RELAXED, F)),
        ConfigError,
        ["estimator", "gumbel expected a discrete alignment", "Dirichlet"],
    ),
    "pathwise of a categorical": (
        lambda: Hard(Pathwise())(AlignmentProblem(PRIOR, F)),
        ConfigError,
        ["estimator", "pathwise expected a continuous", "Categorical", "enumerate"],
    ),
    "marginal of a relaxed latent": (
        lambda: Marginal()(AlignmentProblem(RELAXED, F)),
        ConfigError,
        ["objective", "Marginal expected a discrete alignment", "Dirichlet", "pathwise"],
    ),
    "exact prediction of a relaxed latent": (
        lambda: Exact().log_likelihood(RELAXED, F),
        ConfigError,
        ["inference", "exact expected a discrete alignment", "Dirichlet", "sample:N"],
    ),
    "two families": (
        lambda: Elbo(Pathwise())(AlignmentProblem(PRIOR, F, posterior=RELAXED)),
        ConfigError,
        ["posterior", "one family", "Dirichlet and Categorical", "same class"],
    ),
    "log probabilities of a density": (
        lambda: Exact().log_probs(PRIOR, gaussian()),
        ConfigError,
        ["likelihood", "Normal", "output values", "log_likelihood"],
    ),
    "log probabilities of a table": (
        lambda: Exact().log_probs(PRIOR, TABLE),
        ConfigError,
        ["likelihood", "TableLikelihood", "output values", "log_likelihood"],
    ),
}
for _objective in (Elbo(), Wake(), ReweightedWakeSleep(), Vimco(), StochasticVI(start="posterior")):
    COMBINATIONS[f"{_objective} without a posterior"] = (
        lambda objective=_objective: objective(AlignmentProblem(PRIOR, F)),
        ConfigError,
        ["posterior", f"{type(_objective).__name__} expected", "received none", "pass posterior="],
    )
for _objective in (Soft(), Marginal(), Hard(), StochasticVI(), StochasticEM()):
    COMBINATIONS[f"{_objective} with a posterior"] = (
        lambda objective=_objective: objective(AlignmentProblem(PRIOR, F, posterior=POSTERIOR)),
        ConfigError,
        ["posterior", f"{type(_objective).__name__} takes none", "received Categorical", "drop it"],
    )

MISTAKES = CHOICES | COMBINATIONS


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_explained(name: str) -> None:
    assert_explained(MISTAKES[name])
