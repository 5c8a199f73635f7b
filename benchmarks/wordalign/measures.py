"""Error rates with paired bootstrap intervals, calibration, thresholds, the area under a ROC curve."""

import random
from typing import Any

import numpy as np

from benchmarks.wordalign.corpus import Corpus
from benchmarks.wordalign.systems import Links
from latentalign.text.links import Link
from latentalign.wordalign.aligner import Aligner
from latentalign.wordalign.decoding import PairPosteriors

BINS = 10
SAMPLES = 2000


def rates(found: Links, gold: list[frozenset[Link]]) -> dict[str, float]:
    hits = sum(len(one & other) for one, other in zip(found, gold, strict=True))
    predicted, known = sum(map(len, found)), sum(map(len, gold))
    return {
        "aer": 1 - 2 * hits / (predicted + known),
        "precision": hits / max(1, predicted),
        "recall": hits / known,
    }


def difference(one: Links, other: Links, gold: list[frozenset[Link]]) -> list[float]:
    """The difference of error rates (one − other) with its 95 % interval over resampled pairs."""
    chance = random.Random(0)
    full = rates(one, gold)["aer"] - rates(other, gold)["aer"]
    drawn = []
    for _ in range(SAMPLES):
        picked = [chance.randrange(len(gold)) for _ in gold]
        known = [gold[n] for n in picked]
        drawn.append(
            rates([one[n] for n in picked], known)["aer"] - rates([other[n] for n in picked], known)["aer"]
        )
    drawn.sort()
    return [full, drawn[int(0.025 * SAMPLES)], drawn[int(0.975 * SAMPLES)]]


def calibration(pairs: list[PairPosteriors], gold: list[frozenset[Link]]) -> dict[str, Any]:
    """Of the links that are printed: probability against share of right ones, in ten bins, and their mean distance."""
    probs, right = [], []
    for pair, known in zip(pairs, gold, strict=True):
        for link, probability in pair.links().items():
            probs.append(probability)
            right.append(link in known)
    p, y = np.array(probs), np.array(right, dtype=float)
    bins = []
    for number in range(BINS):
        inside = (p * BINS).astype(int).clip(0, BINS - 1) == number
        if inside.any():
            bins.append(
                {
                    "links": int(inside.sum()),
                    "probability": float(p[inside].mean()),
                    "right": float(y[inside].mean()),
                }
            )
    error = sum(item["links"] * abs(item["probability"] - item["right"]) for item in bins) / len(p)
    return {"error": error, "bins": bins}


def thresholds(pairs: list[PairPosteriors], gold: list[frozenset[Link]]) -> dict[str, float]:
    """The threshold without gold links beside the best of those with them."""
    tried = {
        round(value, 3): rates([frozenset(pair.links(threshold=value)) for pair in pairs], gold)["aer"]
        for value in np.arange(0.1, 0.9, 0.025).tolist()
    }
    best = min(tried, key=lambda value: tried[value])
    own = rates([frozenset(pair.links()) for pair in pairs], gold)["aer"]
    return {"own": pairs[0].threshold, "own_aer": own, "best": best, "best_aer": tried[best]}


def area_under_roc(good: list[float], bad: list[float]) -> float:
    """How often a good pair has the greater score."""
    wrong = np.array(bad)
    return float(np.mean([np.mean((g > wrong) + 0.5 * (g == wrong)) for g in good]))


def dev_pairs(aligner: Aligner, corpus: Corpus) -> list[PairPosteriors]:
    return list(aligner.align(corpus.dev))
