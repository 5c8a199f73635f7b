"""The rows of the paper's translation tables: how each objective is trained."""

from dataclasses import replace
from typing import Any

from latentalign.reports.grid.phase_plan import RowSpec

PRUNE = 0.01  # positions of less responsibility are not enumerated; the base recipe's own value wins
SAMPLED = {"name": "reinforce", "samples": 1, "baseline": "soft"}
ENUMERATED = {"name": "enumerate", "prune": PRUNE}
RELAXED = {"name": "variational", "estimator": "pathwise"}


def _variational(name: str, estimator: Any, label: str, **labels: Any) -> RowSpec:
    last = {"name": "variational", "estimator": estimator}
    return RowSpec(name, "variational", label, last, needs_posterior=True, labels=labels)


def _from_prior(name: str, estimator: Any, label: str, **labels: Any) -> RowSpec:
    """q ∝ p · exp(score): the network has only to say what the word it sees adds to the prior."""
    return replace(
        _variational(name, estimator, label, posterior="q from p", **labels),
        model={"inference_network": {"from_prior": True}},
    )


def _relaxed(name: str, alignment: Any, label: str) -> RowSpec:
    """Jensen's bound first, then q alone, then both: a relaxed prior falls back to uniform otherwise."""
    return RowSpec(
        name,
        "relaxed",
        "pathwise",
        RELAXED,
        needs_posterior=True,
        warmup={"objective": {"name": "hard", "estimator": "pathwise"}},
        inference={"objective": RELAXED, "train": "phi"},
        model={"alignment": alignment},
        labels={"samples": 1, "alignment": label},
    )


def _gaussian_context() -> RowSpec:
    """Soft attention places the mean first (its noise is not trained), then q learns alone, then both."""
    return RowSpec(
        "gaussian-context",
        "variational",
        "pathwise",
        RELAXED,
        needs_posterior=True,
        inference={"objective": RELAXED, "train": "phi"},
        model={"alignment": "gaussian-context"},
        labels={"samples": 1, "alignment": "Gaussian context"},
    )


def _leave_one_out(samples: int) -> RowSpec:
    estimator = {"name": "reinforce", "samples": samples, "baseline": "leave-one-out"}
    return _variational(
        f"leave-one-out-{samples}", estimator, "reinforce", samples=samples, baseline="leave-one-out"
    )


_ROWS = (
    RowSpec("soft", "soft", "none", "soft", is_principal=True),
    RowSpec("marginal", "marginal", "enumerate", {"name": "marginal", "prune": PRUNE}, is_principal=True),
    RowSpec("hard-enumerate", "hard", "enumerate", {"name": "hard", "estimator": ENUMERATED}),
    RowSpec(
        "hard-sample", "hard", "reinforce", {"name": "hard", "estimator": SAMPLED},
        labels={"samples": 1, "baseline": "soft"},
    ),
    _relaxed("relaxed", "dirichlet", "dirichlet"),
    _variational("variational-enumerate", ENUMERATED, "enumerate"),
    RowSpec(
        "variational-sample", "variational", "reinforce", {"name": "variational", "estimator": SAMPLED},
        needs_posterior=True, labels={"samples": 1, "baseline": "soft"}, is_principal=True,
    ),
    RowSpec(
        "rws", "rws", "importance", {"name": "rws", "samples": 5}, needs_posterior=True, labels={"samples": 5}
    ),
    _variational(
        "gumbel", {"name": "gumbel", "samples": 1, "temperature": 0.1}, "gumbel", samples=1, temperature=0.1
    ),
    RowSpec(
        "vimco", "vimco", "importance", {"name": "vimco", "samples": 5}, needs_posterior=True,
        labels={"samples": 5},
    ),
    RowSpec(
        "svi", "svi", "enumerate", {"name": "svi", "steps": 10, "start": "prior", "estimator": ENUMERATED},
        labels={"steps": 10},
    ),
    RowSpec(
        "semi-amortised", "semi-amortised", "enumerate",
        {"name": "svi", "steps": 2, "start": "posterior", "estimator": ENUMERATED},
        needs_posterior=True, labels={"steps": 2},
    ),
    _leave_one_out(2),
    _leave_one_out(5),
    _relaxed("logistic-normal", "logistic-normal", "logistic-normal"),
    RowSpec(
        "sparsemax", "variational", "enumerate", {"name": "variational", "estimator": ENUMERATED},
        needs_posterior=True, model={"alignment": {"name": "categorical", "normalizer": "sparsemax"}},
        labels={"alignment": "sparsemax"},
    ),
    _gaussian_context(),
    RowSpec("wake", "wake", "enumerate", {"name": "wake", "prune": PRUNE}, needs_posterior=True),
    RowSpec(
        "chain", "marginal", "enumerate", {"name": "marginal", "prune": PRUNE},
        model={"alignment": {"name": "chain", "transitions": "jump", "width": 10}}, labels={"alignment": "chain"},
    ),
    _from_prior("enumerate-from-prior", ENUMERATED, "enumerate"),
    _from_prior("sample-from-prior", SAMPLED, "reinforce", samples=1, baseline="soft"),
    RowSpec("em", "em", "reinforce", {"name": "em", "shortlist": 64}, labels={"samples": 1}),
)  # fmt: skip

SPECS: dict[str, RowSpec] = {spec.name: spec for spec in _ROWS}
PAPER = (
    "soft", "marginal", "hard-enumerate", "hard-sample", "relaxed", "variational-enumerate", "variational-sample",
)  # fmt: skip
TABLE1 = (*PAPER, "wake", "chain", "enumerate-from-prior", "sample-from-prior", "em")
TABLE2 = tuple(name for name in PAPER if name != "relaxed")  # K-max needs a categorical prior
TABLE3 = (
    "variational-sample", "rws", "gumbel", "vimco", "svi", "semi-amortised", "leave-one-out-2", "leave-one-out-5",
    "logistic-normal", "sparsemax", "gaussian-context", "enumerate-from-prior", "sample-from-prior",
)  # fmt: skip
