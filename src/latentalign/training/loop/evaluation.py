"""Measure a model on a dataset: the same function validates during training and answers `evaluate`."""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from latentalign.alignment.errors import ConfigError
from latentalign.alignment.learning.estimators import Enumerate, Pathwise
from latentalign.alignment.learning.objectives import Elbo
from latentalign.alignment.likelihoods.likelihood import TableLikelihood
from latentalign.alignment.prediction import Predictor
from latentalign.alignment.registry import parse_inference
from latentalign.errors import UserError
from latentalign.task import Dataset
from latentalign.training.loop.randomness import derive_seed, seeded
from latentalign.training.recipe.schedule import Schedule
from latentalign.training.run.processes import World, gather

BatchProgress = Callable[[int, int], None]  # batches done, and of how many
RELAXED_INFERENCE = "sample:20"
MOST = 10_000  # samples, or positions of kmax


def find_predictor(inference: str) -> Predictor:
    """A predictor by its text; a mistake in it is the user's."""
    count = inference.partition(":")[2].strip()
    if count.isdecimal() and (len(count) > 9 or int(count) > MOST):
        raise UserError(f"inference: expected a count up to {MOST}, received {inference[:40]}")
    try:
        return parse_inference(inference)
    except ValueError as error:
        raise UserError(str(error)) from None


def natural_inference(schedule: Schedule, prior: Any) -> str:
    """How a model trained by this schedule predicts unless another way is named: as its last objective does."""
    if not prior.is_discrete:
        return RELAXED_INFERENCE
    last = [phase for phase in schedule.reached if phase.trains_theta] or [schedule.last]
    return str(last[-1].objective.predicts_by)


@torch.no_grad()
def evaluate_model(
    model: Any,
    dataset: Dataset,
    inference: str,
    *,
    device: torch.device | None = None,
    seed: int = 0,
    with_posterior: bool | None = None,
    world: World | None = None,
    progress: BatchProgress = lambda done, total: None,
) -> dict[str, Any]:
    """Averages over the dataset's outputs: nll, ppl, prior_entropy; elbo and kl with an inference network.

    Several processes share the batches and all of them get the answer. Sampling is seeded by batch: the result does
    not depend on how many processes there are or on what ran before. `progress` is called at every batch.
    """
    started = time.perf_counter()
    device = device or torch.device("cpu")
    world = world or World()
    predictor = find_predictor(inference)
    if with_posterior is None:
        with_posterior = bool(model.phi())
    sums: dict[str, float] = defaultdict(float)
    counts: dict[str, float] = defaultdict(float)
    generator = torch.Generator(device=device)
    was_training = model.training
    model.eval()
    try:
        plan = dataset.plan(-1, seed)
        for number, indices in enumerate(plan):
            progress(number, len(plan))
            if number % world.size != world.rank:
                continue
            generator.manual_seed(derive_seed(seed, "evaluate", number))
            with seeded(seed, "evaluate", number):
                batch = dataset.collate(indices).to(device)
                problem = model.problem(batch, with_posterior=with_posterior)
                _add_bounds(sums, problem, predictor, generator)
                sums["examples"] += len(indices)
                measures = model.measures(batch, problem, predictor, generator=generator)
            for name, (total, count) in measures.items():
                sums[name] += total
                counts[name] += count
    except ConfigError as error:  # an inference that does not fit the model
        raise UserError(str(error)) from None
    finally:
        model.train(was_training)
    if world.size > 1:  # one process that measures by itself must not wait for the others
        sums, counts = _over_ranks(sums, counts)
    return averages(sums, counts, inference, time.perf_counter() - started)


def _add_bounds(
    sums: dict[str, float], problem: Any, predictor: Predictor, generator: torch.Generator
) -> None:
    prior, likelihood, posterior = problem.prior, problem.likelihood, problem.posterior
    if predictor.enumerates and posterior is not None and prior.is_discrete:
        # the exact marginal and the enumerated bound need the same table of log f: compute it once
        likelihood = TableLikelihood(likelihood.everywhere(prior.support))
    weights = problem.weights.double()  # [B,T]
    sums["outputs"] += float(weights.sum())
    sums["nll"] -= weighted_total(predictor.log_likelihood(prior, likelihood, generator=generator), weights)
    sums["prior_entropy"] += weighted_total(prior.alignment_entropy(), weights)
    if posterior is not None:
        estimator = Enumerate() if posterior.is_discrete else Pathwise()
        bound = Elbo(estimator)(replace(problem, likelihood=likelihood), generator=generator)
        sums["elbo"] += weighted_total(bound.value, weights)
        sums["kl"] += weighted_total(bound.kl, weights)


def weighted_total(values: Tensor, weights: Tensor) -> float:
    """Σ w·v in double precision, where w = 0 wins over whatever v is there."""
    return float(torch.where(weights > 0, values.double() * weights, torch.zeros_like(weights)).sum())


def _over_ranks(
    sums: dict[str, float], counts: dict[str, float]
) -> tuple[dict[str, float], dict[str, float]]:
    totals: tuple[dict[str, float], dict[str, float]] = (defaultdict(float), defaultdict(float))
    for parts in gather((dict(sums), dict(counts))):
        for total, part in zip(totals, parts, strict=True):
            for name, value in part.items():
                total[name] += value
    return totals


def averages(
    sums: Mapping[str, float], counts: Mapping[str, float], inference: str, seconds: float
) -> dict[str, Any]:
    """What `evaluate` reports, by sums over outputs; measures of the task's own have counts of their own."""
    outputs = sums["outputs"]
    if outputs <= 0:
        raise UserError("data: no outputs to measure; expected at least one example")
    nll = sums["nll"] / outputs
    result: dict[str, Any] = {
        "examples": int(sums["examples"]),
        "tokens": int(outputs) if outputs == int(outputs) else outputs,
        "nll": nll,
        "ppl": math.exp(nll) if nll < 700 else math.inf,
        "prior_entropy": sums["prior_entropy"] / outputs,
        "inference": inference,
    }
    if "elbo" in sums:
        result["elbo"] = sums["elbo"] / outputs
        result["kl"] = sums["kl"] / outputs
    for name, count in counts.items():
        if count:
            result[name] = sums[name] / count
    result["seconds"] = seconds
    return result
