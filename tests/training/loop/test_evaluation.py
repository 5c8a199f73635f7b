"""Evaluation: the contract's numbers, the same under any split into batches, for every inference."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from latentalign.alignment.learning.objectives import Elbo, Marginal
from latentalign.errors import UserError
from latentalign.task import EvaluationOptions
from latentalign.training.loop.evaluation import evaluate_model
from latentalign.training.run.processes import World
from latentalign.training.trained_run import Run, load
from tests.training.copying import CopyData
from tests.training.helpers import run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("evaluate") / "run"
    run(folder, objective="variational", training={"epochs": 4.0, "validate_every": None})
    return load(folder)


def brute_force(model: Any, objective: Any, with_posterior: bool) -> tuple[float, float]:
    """(sum of the objective's values, outputs) one example at a time."""
    data = CopyData(12, 3, 5)
    total = outputs = 0.0
    with torch.no_grad():
        for index in range(len(data)):
            problem = model.problem(data.collate([index]), with_posterior=with_posterior)
            bound = objective(problem)
            total += float(bound.value.sum())
            outputs += bound.value.numel()
    return total, outputs


def test_nll_and_bound_count_every_output_once(trained: Run) -> None:
    results = trained.evaluate()
    total, outputs = brute_force(trained.model, Marginal(), False)
    assert results["task"] == "copy"
    assert results["inference"] == "exact"
    assert (results["examples"], results["tokens"]) == (12, outputs)
    assert results["nll"] == pytest.approx(-total / outputs, rel=1e-5)
    assert results["ppl"] == pytest.approx(math.exp(results["nll"]))
    bound, _ = brute_force(trained.model, Elbo(), True)
    assert results["elbo"] == pytest.approx(bound / outputs, rel=1e-5)
    assert results["kl"] > 0
    assert results["elbo"] <= -results["nll"]
    assert 0 <= results["accuracy"] <= 1
    assert results["seconds"] > 0


@pytest.mark.parametrize("inference", ["exact", "kmax:1", "kmax:2", "kmax:99", "soft", "sample:200"])
def test_every_inference_works_with_any_model(trained: Run, inference: str) -> None:
    results = trained.evaluate(inference=inference)
    exact = trained.evaluate()
    assert results["inference"] == inference
    assert math.isfinite(results["nll"])
    if inference == "kmax:99":
        assert results["nll"] == pytest.approx(exact["nll"], rel=1e-6)
    if inference == "sample:200":
        assert results["nll"] == pytest.approx(exact["nll"], abs=0.05)
        assert trained.evaluate(inference=inference)["nll"] == results["nll"]
        assert trained.evaluate(inference=inference, seed=1)["nll"] != results["nll"]


def test_evaluation_leaves_the_model_and_the_generator_alone(trained: Run) -> None:
    trained.model.train()
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    trained.evaluate(inference="sample:3")
    assert torch.equal(torch.rand(3), expected)
    assert trained.model.training
    trained.model.eval()


def test_shares_of_several_processes_add_up(trained: Run) -> None:
    data = CopyData(12, 3, 5)
    parts = [evaluate_model(trained.model, data, "sample:4", world=World(rank, 2)) for rank in range(2)]
    whole = evaluate_model(trained.model, data, "sample:4")
    assert sum(part["examples"] for part in parts) == whole["examples"]
    joined = sum(part["nll"] * part["tokens"] for part in parts) / whole["tokens"]
    assert joined == pytest.approx(whole["nll"], rel=1e-12)


@pytest.mark.parametrize(
    ("inference", "message"),
    [
        ("kmax:0", "k: expected"),
        ("sample:-1", "n: expected"),
        ("beam", "expected one of exact"),
        ("kmax:x", "whole number"),
    ],
)
def test_a_wrong_inference_is_told(trained: Run, inference: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        trained.evaluate(inference=inference)


def test_data_that_do_not_fit_the_task_are_told(trained: Run) -> None:
    with pytest.raises(
        UserError, match=r"--source: does not go with the task 'copy', which takes --data, --split"
    ):
        trained.evaluate(source="x")


def test_data_that_are_missing_are_told(trained: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Pairs(EvaluationOptions):
        source: str
        target: str
        size: int = 3

    monkeypatch.setattr(type(trained.task), "EvaluationConfig", Pairs)
    with pytest.raises(UserError, match=r"the task 'copy' needs --target$"):
        trained.evaluate(source="x")


def test_a_relaxed_model_refuses_enumeration(tmp_path: Path) -> None:
    objective = {"name": "hard", "estimator": "pathwise"}
    run(tmp_path / "run", model={"prior": "dirichlet"}, objective=objective, training={"epochs": 0.2})
    loaded = load(tmp_path / "run")
    assert loaded.evaluate()["inference"] == "sample:20"
    with pytest.raises(UserError, match="sample:N"):
        loaded.evaluate(inference="exact")
