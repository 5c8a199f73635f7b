"""Statements about order, tested over languages: each language is one paired observation."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Row = Mapping[str, Any]
UNITS = {
    "nll": "NLL",
    "word_error": "word error",
    "prior_entropy": "prior entropy",
    "sharpness": "sharpness of links",
}
# (measure, row that is larger, row that is smaller); what the paper's tables say, and what chains promise
STATEMENTS = (
    ("nll", "soft", "variational-sample"),
    ("nll", "soft", "variational-sample-from-prior"),
    ("nll", "soft", "variational"),
    ("nll", "soft", "marginal"),
    ("nll", "marginal", "variational"),
    ("nll", "marginal", "variational-sample"),
    ("nll", "variational-sample", "variational-sample-from-prior"),
    ("nll", "soft", "em"),
    ("nll", "variational-sample", "em"),
    ("nll", "variational-sample", "variational"),
    ("nll", "marginal", "em"),
    ("nll", "hard", "soft"),
    ("nll", "soft", "chain"),
    ("nll", "marginal", "chain"),
    ("nll", "soft", "chain-monotone"),
    ("nll", "chain-monotone", "chain"),
    ("nll", "chain", "chain-long"),
    ("nll", "chain", "chain-deep"),
    ("nll", "chain", "ensemble"),
    ("nll", "chain-long", "ensemble"),
    ("nll", "chain-long", "multilingual"),
    ("nll", "multilingual", "multilingual-ensemble"),
    ("word_error", "soft", "variational-sample"),
    ("word_error", "soft", "variational-sample-from-prior"),
    ("word_error", "soft", "variational"),
    ("word_error", "soft", "marginal"),
    ("word_error", "soft", "em"),
    ("word_error", "hard", "soft"),
    ("word_error", "soft", "chain"),
    ("word_error", "marginal", "chain"),
    ("word_error", "soft", "chain-monotone"),
    ("word_error", "chain-monotone", "chain"),
    ("word_error", "chain", "chain-long"),
    ("word_error", "chain", "chain-deep"),
    ("word_error", "chain", "ensemble"),
    ("word_error", "chain-long", "ensemble"),
    ("word_error", "chain-long", "multilingual"),
    ("word_error", "multilingual", "multilingual-ensemble"),
    ("prior_entropy", "soft", "marginal"),
    ("prior_entropy", "marginal", "variational"),
    ("prior_entropy", "variational", "hard"),
    ("sharpness", "marginal", "soft"),
    ("sharpness", "variational-sample", "soft"),
    ("sharpness", "variational-sample-from-prior", "soft"),
    ("sharpness", "em", "soft"),
    ("sharpness", "chain-monotone", "soft"),
)
CONFIDENCE = 0.95


def by_language(rows: Sequence[Row], row: str, measure: str) -> dict[str, float]:
    """The mean over seeds for every language."""
    found: dict[str, list[float]] = {}
    for one in rows:
        if one["row"] == row and one.get(measure) is not None:
            found.setdefault(one["language"], []).append(one[measure])
    return {language: sum(values) / len(values) for language, values in found.items()}


def check_statements(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Every statement for which there are languages with both rows, for each size of languages by itself."""
    found = []
    for size in dict.fromkeys(row["size"] for row in rows):
        alike = [row for row in rows if row["size"] == size]
        for measure, larger, smaller in STATEMENTS:
            if differences := paired_differences(alike, measure, larger, smaller):
                statement = {
                    "size": size,
                    "statement": f"{UNITS[measure]}: {larger} > {smaller}",
                    "measure": measure,
                }
                found.append(statement | paired_test(differences))
    return found


def paired_differences(rows: Sequence[Row], measure: str, larger: str, smaller: str) -> list[float]:
    """One number for every language that has both rows: the mean over the seeds that both have."""
    values = {(one["row"], one["language"], one["seed"]): one.get(measure) for one in rows}
    found: dict[str, list[float]] = {}
    for (row, language, seed), left in values.items():
        right = values.get((smaller, language, seed))
        if row == larger and left is not None and right is not None:
            found.setdefault(language, []).append(left - right)
    return [sum(differences) / len(differences) for differences in found.values()]


def paired_test(differences: Sequence[float]) -> dict[str, Any]:
    """The sign test (two-sided, without ties) and the mean difference with its t interval."""
    from scipy.stats import binomtest, t

    wins = sum(difference > 0 for difference in differences)
    decided = sum(difference != 0 for difference in differences)
    mean, count = float(np.mean(differences)), len(differences)
    interval = None
    if count > 1:
        half = (
            float(t.ppf(0.5 + CONFIDENCE / 2, count - 1))
            * float(np.std(differences, ddof=1))
            / math.sqrt(count)
        )
        interval = [round(mean - half, 5), round(mean + half, 5)]
    return {
        "languages": count,
        "holds_in": wins,
        "ties": count - decided,
        "p": round(float(binomtest(wins, decided).pvalue), 4) if decided else 1.0,
        "difference": round(mean, 5),
        "interval": interval,
        "verdict": _verdict(mean, interval),
    }


def _verdict(mean: float, interval: list[float] | None) -> str:
    if interval is None or interval[0] <= 0 <= interval[1]:
        return "open"
    return "holds" if mean > 0 else "the reverse holds"
