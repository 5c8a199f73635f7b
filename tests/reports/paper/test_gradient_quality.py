"""Variance and bias of gradients, measured on a problem small enough to know them."""

import pytest
import torch

from latentalign.alignment.learning.estimators import Enumerate, GumbelSoftmax, NoBaseline, Reinforce
from latentalign.alignment.learning.objectives import Elbo, Hard, Marginal
from latentalign.reports.paper.gradient_quality import (
    Comparison,
    bound_tightness,
    comparisons,
    gradient_quality,
)
from tests.training.copying import CopyData, CopyModel, ModelConfig


@pytest.fixture
def model():
    torch.manual_seed(1)
    model = CopyModel(ModelConfig(dropout=0.5), needs_posterior=True)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    return model.train()  # measuring turns dropout off by itself


@pytest.fixture
def batch():
    return CopyData(6, 1, 6).collate(list(range(6)))


def quality(model, batch, objective, *, repeats=200, exact=None):
    groups = ("theta", "phi") if objective.needs_posterior else ("theta",)
    compared = [Comparison("variational", exact or Elbo(), "it", objective, groups)]
    rows = gradient_quality(model, batch, repeats=repeats, compared=compared)
    return {row["parameters"]: row for row in rows}


def test_the_exact_gradient_has_neither_variance_nor_bias(model, batch):
    for row in quality(model, batch, Elbo(Enumerate()), repeats=3).values():
        assert row["relative_variance"] == pytest.approx(0.0, abs=1e-10)
        assert row["bias"] == pytest.approx(0.0, abs=1e-5)
        assert row["cosine"] == pytest.approx(1.0)


def test_reinforce_is_unbiased_and_its_baseline_and_samples_lower_the_variance(model, batch):
    plain = quality(model, batch, Elbo(Reinforce(1, NoBaseline())))
    better = quality(model, batch, Elbo(Reinforce(1)))
    many = quality(model, batch, Elbo(Reinforce(8)))
    assert plain["phi"]["relative_variance"] > better["phi"]["relative_variance"]
    for group in ("theta", "phi"):
        # eight independent samples have an eighth of the variance
        ratio = better[group]["relative_variance"] / many[group]["relative_variance"]
        assert 5 < ratio < 12
        # unbiased: what is left is the noise of the correction itself
        assert many[group]["bias"] < 2 * (many[group]["relative_variance"] / 200) ** 0.5
        assert many[group]["cosine"] > better[group]["cosine"]


def test_a_relaxed_sample_is_biased(model, batch):
    soft = quality(model, batch, Elbo(GumbelSoftmax(5.0)))
    assert soft["theta"]["bias"] > 5 * (soft["theta"]["relative_variance"] / 200) ** 0.5


def test_another_target_is_a_bias(model, batch):
    row = quality(model, batch, Marginal(), repeats=2, exact=Hard())["theta"]
    assert row["relative_variance"] == pytest.approx(0.0, abs=1e-10)
    assert row["bias"] > 0.01


def test_every_estimator_of_the_tables_is_compared(model, batch):
    rows = gradient_quality(model, batch, repeats=2)
    assert len(rows) == sum(len(item.parameters) for item in comparisons()) == 24
    assert all(row["draws"] == 2 for row in rows)


def test_bounds_lie_below_the_marginal_and_the_exact_posterior_is_tight(model, batch):
    gaps = {row["bound"]: row["gap"] for row in bound_tightness(model, [batch, batch])}
    assert gaps["variational with the exact posterior"] == pytest.approx(0.0, abs=1e-6)
    for name in ("hard (Jensen)", "variational", "svi, 10 steps", "semi-amortised, 2 steps"):
        assert gaps[name] > 0
    assert gaps["svi, 10 steps"] < gaps["hard (Jensen)"]
    assert gaps["semi-amortised, 2 steps"] < gaps["variational"]
    assert "soft (no bound)" in gaps
