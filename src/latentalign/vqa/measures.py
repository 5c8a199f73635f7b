"""What is measured on a batch besides likelihood: VQA scores, and how often the gold region is found."""

import torch
from torch import Tensor

from latentalign.alignment.learning.problem import AlignmentProblem
from latentalign.alignment.metrics import exact_posterior
from latentalign.alignment.prediction import Predictor
from latentalign.vqa.answers import official_score, simple_score
from latentalign.vqa.dataset import VqaBatch

SumsAndCounts = dict[str, tuple[float, float]]


def measure_batch(
    batch: VqaBatch,
    problem: AlignmentProblem,
    predictor: Predictor,
    *,
    generator: torch.Generator | None = None,
) -> SumsAndCounts:
    """(sum, count) by name; scores and shares are in percent.

    `prior_gold`, `posterior_gold` and `inference_gold`: how often the likeliest region of the prior, of the
    exact posterior p(z|x,y) and of the inference network is one that shows the answer.
    """
    log_probs = predictor.log_probs(problem.prior, problem.likelihood, generator=generator)  # [B,1,V]
    return {**_scores(batch, log_probs[:, 0].argmax(dim=-1)), **_gold(batch, problem)}


def _scores(batch: VqaBatch, predicted: Tensor) -> SumsAndCounts:
    people = (batch.said != -2).sum(dim=1).tolist()
    matches = (batch.said == predicted[:, None]).sum(dim=1).tolist()
    measures: SumsAndCounts = {}
    for kind, agreeing, asked in zip(batch.question_types, matches, people, strict=True):
        simple = 100 * simple_score(agreeing)
        for name, value in (
            ("score", simple),
            ("score_official", 100 * official_score(agreeing, asked)),
            (f"score[{kind}]", simple),
        ):
            total, count = measures.get(name, (0.0, 0.0))
            measures[name] = (total + value, count + 1)
    measures["answerable"] = (100 * float(batch.answerable.sum()), float(len(people)))
    return measures


def _gold(batch: VqaBatch, problem: AlignmentProblem) -> SumsAndCounts:
    known = batch.gold.any(dim=1) & batch.answerable[:, 0]
    count = float(known.sum())
    if not count:
        return {}
    found = {
        "prior_gold": problem.prior.alignment_probs().argmax(dim=-1),
        "posterior_gold": exact_posterior(problem.prior, problem.likelihood).alignment_probs().argmax(dim=-1),
    }
    if problem.posterior is not None:
        found["inference_gold"] = problem.posterior.alignment_probs().argmax(dim=-1)
    return {
        name: (100 * float((batch.gold.gather(1, region)[:, 0] & known).sum()), count)
        for name, region in found.items()
    }
