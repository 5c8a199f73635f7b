"""Every objective, ready to run, and random problems to run it on: what property tests go through."""

import torch
from hypothesis import strategies as st
from torch import Tensor

from latentalign.alignment import (
    Dirichlet,
    Elbo,
    Enumerate,
    GumbelSoftmax,
    Hard,
    LeaveOneOut,
    LogisticNormal,
    Marginal,
    NoBaseline,
    Reinforce,
    ReweightedWakeSleep,
    RunningMean,
    Soft,
    StochasticEM,
    StochasticVI,
    Vimco,
    Wake,
)
from tests.alignment import problems
from tests.alignment.problems import Problem

DETERMINISTIC = {
    "soft": Soft(),
    "marginal": Marginal(),
    "pruned": Marginal(prune=0.02),
    "hard": Hard(),
    "variational": Elbo(),
    "variational-pruned": Elbo(Enumerate(prune=0.02)),
    "wake": Wake(),
    "svi": StochasticVI(steps=3),
    "semi-amortised": StochasticVI(steps=2, start="posterior"),
    "em": StochasticEM(estimator=Enumerate()),
}
SAMPLED = {
    "reinforce": lambda: Elbo(Reinforce(samples=2)),
    "reinforce-none": lambda: Elbo(Reinforce(baseline=NoBaseline())),
    "reinforce-running-mean": lambda: Elbo(Reinforce(baseline=RunningMean())),
    "reinforce-leave-one-out": lambda: Hard(Reinforce(samples=3, baseline=LeaveOneOut())),
    "gumbel": lambda: Elbo(GumbelSoftmax(temperature=0.1)),
    "rws": lambda: ReweightedWakeSleep(samples=3),
    "vimco": lambda: Vimco(samples=3),
    "em-reinforce": StochasticEM,
    "svi-reinforce": lambda: StochasticVI(steps=2, estimator=Reinforce(samples=2)),
}
RELAXED = {
    "dirichlet": Dirichlet.from_scores,
    "logistic-normal": LogisticNormal.from_scores,
}
EVERY = [*DETERMINISTIC, *SAMPLED]

small_problems = st.builds(
    problems.make,
    st.integers(0, 10_000),
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple),
    steps=st.integers(1, 3),
    spread=st.sampled_from([0.3, 1.0, 3.0]),
)


def objective_of(name: str):
    return DETERMINISTIC[name] if name in DETERMINISTIC else SAMPLED[name]()


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def changed(problem: Problem, **leaves: Tensor) -> Problem:
    """The problem with other tensors, as new leaves of the graph."""
    fresh = {
        name: leaf.detach().clone().requires_grad_(leaf.dtype.is_floating_point)
        for name, leaf in leaves.items()
    }
    return Problem(**{**vars(problem), **fresh})
