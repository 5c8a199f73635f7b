"""Figures that were published for these models, to compare ours with. By task, then by the name of a row."""

from typing import Any

# Deng, Kim, Chiu, Guo, Rush 2018, tables 1 to 3: IWSLT-14 German to English
TRANSLATION: dict[str, dict[str, Any]] = {
    "soft": {"ppl": 7.17, "bleu": 32.77, "prior_entropy": 1.24},
    "marginal": {"ppl": 6.34, "bleu": 33.29, "prior_entropy": 0.82, "kmax:5": {"ppl": 6.90, "bleu": 33.31}},
    "hard-enumerate": {"ppl": 7.37, "bleu": 31.40, "prior_entropy": 0.05, "kmax:5": {"ppl": 7.37, "bleu": 31.37}},
    "hard-sample": {"ppl": 7.38, "bleu": 31.00, "prior_entropy": 0.07, "kmax:5": {"ppl": 7.38, "bleu": 31.04}},
    "relaxed": {"ppl": 7.58, "bleu": 30.05, "prior_entropy": 2.02},
    "variational-enumerate": {
        "ppl": 6.08, "bleu": 33.68, "prior_entropy": 0.54, "kmax:5": {"ppl": 6.42, "bleu": 33.69}
    },
    "variational-sample": {
        "ppl": 6.17, "bleu": 33.30, "prior_entropy": 0.52, "kmax:5": {"ppl": 6.51, "bleu": 33.27}
    },
    "rws": {"ppl": 6.41, "bleu": 32.96},
    "gumbel": {"ppl": 6.51, "bleu": 33.08},
}  # fmt: skip

# the same paper, table 1: VQA 2.0
VQA: dict[str, dict[str, Any]] = {
    "soft": {"nll": 1.76, "score": 58.93, "prior_entropy": 2.70},
    "marginal": {"nll": 1.69, "score": 60.33, "prior_entropy": 2.66},
    "hard-enumerate": {"nll": 1.78, "score": 57.60, "prior_entropy": 0.73},
    "hard-sample": {"nll": 1.82, "score": 56.30, "prior_entropy": 0.58},
    "variational-enumerate": {"nll": 1.69, "score": 58.44, "prior_entropy": 2.07},
    "variational-sample": {"nll": 1.75, "score": 57.52, "prior_entropy": 2.44},
}

PUBLISHED: dict[str, dict[str, dict[str, Any]]] = {"translation": TRANSLATION, "vqa": VQA}


def published(task: str, row: str, inference: str | None = None) -> dict[str, float]:
    """The published figures of a row, under K-max if that is asked for; {} if there are none."""
    figures = PUBLISHED.get(task, {}).get(row, {})
    if inference is not None and inference.startswith("kmax"):
        return dict(figures.get(inference, {}))
    return {name: value for name, value in figures.items() if not isinstance(value, dict)}
