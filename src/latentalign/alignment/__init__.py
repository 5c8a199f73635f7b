"""The library of latent alignments: distributions, likelihoods, estimators, objectives, predictions.

It imports nothing of the rest of the package.
"""

from latentalign.alignment.attention import AttentionOutput, LatentAttention
from latentalign.alignment.chains.chain import Chain, ChainDistribution
from latentalign.alignment.chains.hidden_markov import ExpectedCounts, expected_counts
from latentalign.alignment.chains.matrix import MatrixTransitions
from latentalign.alignment.chains.monotone import MonotoneTransitions
from latentalign.alignment.chains.movement import Jumps, Monotone, jump_matrix
from latentalign.alignment.chains.null_state import (
    NullMarginalised,
    f_with_null,
    marginalise_with_null,
    positions_with_null,
    with_null,
)
from latentalign.alignment.chains.transitions import Transitions
from latentalign.alignment.errors import ConfigError, NonFiniteError, ShapeError
from latentalign.alignment.latents.categorical import Categorical, external_posterior
from latentalign.alignment.latents.context import GaussianContext, VectorLikelihood
from latentalign.alignment.latents.continuous import Dirichlet, LogisticNormal, Normal
from latentalign.alignment.latents.latent import DiscreteLatent, Latent
from latentalign.alignment.learning.bound import Bound
from latentalign.alignment.learning.estimators import (
    Enumerate,
    Estimator,
    GumbelSoftmax,
    LeaveOneOut,
    NoBaseline,
    Pathwise,
    Reinforce,
    RunningMean,
    SoftBaseline,
)
from latentalign.alignment.learning.importance import ReweightedWakeSleep, Vimco
from latentalign.alignment.learning.objectives import (
    Elbo,
    Hard,
    Marginal,
    Objective,
    Soft,
    StochasticEM,
    StochasticVI,
    Wake,
)
from latentalign.alignment.learning.problem import AlignmentProblem
from latentalign.alignment.likelihoods.likelihood import ContextLikelihood, Likelihood, TableLikelihood
from latentalign.alignment.likelihoods.softmax_head import SoftmaxHead
from latentalign.alignment.metrics import (
    alignment_error_rate,
    exact_posterior,
    log_marginal,
    proposition1,
    tightness,
)
from latentalign.alignment.prediction import Exact, KMax, Predictor, Sampled, SoftContext
from latentalign.alignment.registry import (
    build_distribution,
    build_estimator,
    build_objective,
    build_score,
    parse_inference,
)
from latentalign.alignment.scores import Additive, Dot, General

__all__ = [
    "Additive",
    "AlignmentProblem",
    "AttentionOutput",
    "Bound",
    "Categorical",
    "Chain",
    "ChainDistribution",
    "ConfigError",
    "ContextLikelihood",
    "Dirichlet",
    "DiscreteLatent",
    "Dot",
    "Elbo",
    "Enumerate",
    "Estimator",
    "Exact",
    "ExpectedCounts",
    "GaussianContext",
    "General",
    "GumbelSoftmax",
    "Hard",
    "Jumps",
    "KMax",
    "Latent",
    "LatentAttention",
    "LeaveOneOut",
    "Likelihood",
    "LogisticNormal",
    "Marginal",
    "MatrixTransitions",
    "Monotone",
    "MonotoneTransitions",
    "NoBaseline",
    "NonFiniteError",
    "Normal",
    "NullMarginalised",
    "Objective",
    "Pathwise",
    "Predictor",
    "Reinforce",
    "ReweightedWakeSleep",
    "RunningMean",
    "Sampled",
    "ShapeError",
    "Soft",
    "SoftBaseline",
    "SoftContext",
    "SoftmaxHead",
    "StochasticEM",
    "StochasticVI",
    "TableLikelihood",
    "Transitions",
    "VectorLikelihood",
    "Vimco",
    "Wake",
    "alignment_error_rate",
    "build_distribution",
    "build_estimator",
    "build_objective",
    "build_score",
    "exact_posterior",
    "expected_counts",
    "external_posterior",
    "f_with_null",
    "jump_matrix",
    "log_marginal",
    "marginalise_with_null",
    "parse_inference",
    "positions_with_null",
    "proposition1",
    "tightness",
    "with_null",
]
