"""One question about one story, answered by a trained model."""

import logging
from collections.abc import Mapping
from typing import Any

import torch

from latentalign.alignment.prediction import Predictor
from latentalign.errors import UserError
from latentalign.memory.dataset import StoryDataset
from latentalign.memory.model import MemoryModel, MemoryProblem
from latentalign.memory.stories import (
    Fact,
    Question,
    Story,
    normalise_answer,
    parse_facts,
    read_facts,
    split_words,
)
from latentalign.memory.vocabulary import UNKNOWN_ANSWER, Vocabulary

logger = logging.getLogger(__name__)


@torch.no_grad()
def answer_question(
    model: MemoryModel,
    vocabulary: Vocabulary,
    request: Mapping[str, Any],
    *,
    memory: int,
    predictor: Predictor,
    top: int = 5,
    generator: torch.Generator | None = None,
) -> dict[str, Any]:
    """The likeliest answers, and how much each hop looked at each fact.

    `request` holds `question`, `story` (a file, or a list of lines) and perhaps `answer`: with a known answer
    the posterior of the inference network is shown too, if the run has one.
    """
    facts, asked = _parse(request)
    dataset = StoryDataset([Story(facts, (asked,))], vocabulary, memory=memory, batch_size=1)
    batch = dataset.collate([0]).to(next(model.parameters()).device)
    if asked.answer and not bool(batch.known_answers.all()):
        raise UserError(f"answer: --answer {asked.answer!r} was never an answer in training; try another")
    for line in dataset.remarks():
        if "answers" not in line and not isinstance(request["story"], list):
            logger.warning("%s: %s", request["story"], line)
    problem = model.problem(batch, with_posterior=bool(asked.answer) and model.inference is not None)
    log_probs = predictor.log_probs(problem.prior, problem.likelihood, generator=generator)[0, 0]
    log_probs[UNKNOWN_ANSWER] = -torch.inf
    best = log_probs.exp().topk(min(top, len(vocabulary.answers) - 1))
    return {
        "question": asked.text,
        "answers": [
            {"answer": vocabulary.answers[int(number)], "probability": float(probability)}
            for probability, number in zip(best.values, best.indices, strict=True)
        ],
        "unknown_words": sorted(dataset.unknown_words),
        "evidence": _evidence(problem, facts[-memory:]),
    }


def _parse(request: Mapping[str, Any]) -> tuple[tuple[Fact, ...], Question]:
    extra = sorted(set(request) - {"question", "story", "answer"})
    if extra:
        raise UserError(
            f"answer: --{extra[0]} means nothing to a memory run; expected --question and --story"
        )
    if "story" not in request:
        raise UserError("answer: a memory run needs --story FILE, one fact a line")
    words = split_words(request["question"])
    if not words:
        raise UserError("answer: --question holds no word; ask for example 'Where is Mary?'")
    story = request["story"]
    facts = parse_facts(story, "story") if isinstance(story, list) else read_facts(story)
    answer = normalise_answer(request.get("answer", ""))
    return facts, Question(request["question"], words, answer, len(facts))


def _evidence(problem: MemoryProblem, facts: tuple[Fact, ...]) -> list[dict[str, Any]]:
    """Every fact in memory with the attention of each hop; `prior` is that of the last."""
    hops = problem.attention(problem.prior, len(facts))[0]  # [hops,S]
    evidence: list[dict[str, Any]] = [
        {"text": fact.text, "prior": float(hops[-1, slot]), "hops": hops[:, slot].tolist()}
        for slot, fact in enumerate(facts)
    ]
    if problem.posterior is not None:
        shares = problem.attention(problem.posterior, len(facts))[0, -1]
        for entry, share in zip(evidence, shares, strict=True):
            entry["posterior"] = float(share)
    return evidence
