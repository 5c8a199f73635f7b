"""The aligner once more: plain loops over Python numbers and dictionaries, nothing of latentalign.

A corpus is a list of (source words, target words). Direction by direction: `given` words, `predicted` words.
"""

import itertools
import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

Table = dict[tuple[str, str], float]  # (given, predicted) -> number


def digamma(x: float) -> float:
    """By recurrence up to 10, then by its asymptotic series."""
    below = 0.0
    while x < 10:
        below -= 1 / x
        x += 1
    inverse = 1 / (x * x)
    series = inverse * (1 / 12 - inverse * (1 / 120 - inverse * (1 / 252 - inverse / 240)))
    return below + math.log(x) - 0.5 / x - series


def exp_digamma(x: float) -> float:
    return math.exp(digamma(x))


def dice(one: str, other: str) -> float:
    def grams(word: str) -> set[str]:
        letters = [c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c)]
        marked = "<" + "".join({"k": "c", "z": "c"}.get(c, c) for c in letters) + ">"
        return {marked[i : i + 3] for i in range(max(1, len(marked) - 2))}

    left, right = grams(one), grams(other)
    return 2 * len(left & right) / (len(left) + len(right))


def lexicon(
    counts: Table,
    given: Counter[str],
    predicted: Counter[str],
    *,
    alpha: float,
    affix_weight: float,
    affix_alpha: float,
    cuts: Sequence[slice],
    least_likeness: float,
    likeness_weight: float,
    estimate: Callable[[float], float],
) -> Table:
    """t(e|f) for every pair of words."""
    spread: list[Table] = []
    for cut in cuts:
        total: dict[tuple[str, str], float] = defaultdict(float)
        norm: dict[str, float] = defaultdict(float)
        for (f, e), count in counts.items():
            total[f[cut], e[cut]] += count
            norm[f[cut]] += count
        size = len({e[cut] for e in predicted})
        same: Counter[str] = Counter()
        for e, number in predicted.items():
            same[e[cut]] += number
        level = {}
        for f in given:
            for e in predicted:
                found = total.get((f[cut], e[cut]), 0.0)
                # pairs of affixes that were never counted have nothing to spread
                t = (
                    exp_digamma(found + affix_alpha) / exp_digamma(norm[f[cut]] + affix_alpha * size)
                    if found
                    else 0.0
                )
                level[f, e] = t * predicted[e] / same[e[cut]]
        spread.append(level)
    result = {}
    for f in given:
        norm_f = (
            sum(counts.get((f, e), 0.0) for e in predicted)
            + alpha * len(predicted)
            + affix_weight * len(cuts)
        )
        for e in predicted:
            a = counts.get((f, e), 0.0) + alpha + affix_weight * sum(level[f, e] for level in spread)
            likeness = dice(f, e)
            if likeness_weight and likeness >= least_likeness:
                a += likeness_weight * likeness**2
            result[f, e] = estimate(a) / estimate(norm_f)
    return result


def paths(
    given: Sequence[str],
    predicted: Sequence[str],
    t: Table,
    null_words: dict[str, float],
    null: float,
    jump: Callable[[int | None, int], float],
    end: Callable[[int], float],
) -> tuple[float, list[list[float]]]:
    """The likelihood and the posterior of links [T][S], over every way to link every word or to leave it."""
    total = 0.0
    posterior = [[0.0] * len(given) for _ in predicted]
    for path in itertools.product([None, *range(len(given))], repeat=len(predicted)):
        weight, last = 1.0, None
        for step, position in enumerate(path):
            if position is None:
                weight *= null * null_words[predicted[step]]
            else:
                weight *= (1 - null) * jump(last, position) * t[given[position], predicted[step]]
                last = position
        weight *= 1.0 if last is None else end(last)
        total += weight
        for step, position in enumerate(path):
            if position is not None:
                posterior[step][position] += weight
    return total, [[value / total for value in row] for row in posterior]
