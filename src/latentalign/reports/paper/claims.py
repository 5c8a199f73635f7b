"""What the paper claims about the order of its rows, and whether ours are in that order."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from latentalign.reports.paper.published import published

Means = Mapping[str, Mapping[str, Any]]  # row name -> summary

_UNITS = {"ppl": "PPL", "bleu": "BLEU", "prior_entropy": "prior entropy", "nll": "NLL", "score": "score"}
# (measure, row that is larger, row that is smaller)
_TABLE1 = (
    ("ppl", "soft", "marginal"),
    ("ppl", "marginal", "variational-enumerate"),
    ("ppl", "soft", "variational-enumerate"),
    ("ppl", "marginal", "variational-sample"),
    ("ppl", "soft", "variational-sample"),
    ("ppl", "hard-enumerate", "soft"),
    ("ppl", "hard-sample", "soft"),
    ("ppl", "relaxed", "soft"),
    ("ppl", "relaxed", "hard-sample"),
    ("bleu", "marginal", "soft"),
    ("bleu", "variational-enumerate", "marginal"),
    ("bleu", "variational-sample", "soft"),
    ("bleu", "soft", "hard-enumerate"),
    ("bleu", "hard-enumerate", "relaxed"),
    ("prior_entropy", "variational-enumerate", "hard-enumerate"),
    ("prior_entropy", "marginal", "variational-enumerate"),
    ("prior_entropy", "soft", "marginal"),
    ("prior_entropy", "relaxed", "soft"),
)
_TABLE3 = (
    ("ppl", "rws", "variational-sample"),
    ("ppl", "gumbel", "rws"),
    ("ppl", "svi", "variational-sample"),
    ("bleu", "variational-sample", "rws"),
    ("bleu", "gumbel", "rws"),
)
_VQA = (
    ("nll", "soft", "marginal"),
    ("nll", "soft", "variational-enumerate"),
    ("nll", "soft", "variational-sample"),
    ("nll", "hard-enumerate", "soft"),
    ("nll", "hard-sample", "hard-enumerate"),
    ("score", "marginal", "soft"),
    ("score", "soft", "variational-enumerate"),
    ("score", "soft", "hard-enumerate"),
    ("prior_entropy", "soft", "marginal"),
    ("prior_entropy", "marginal", "variational-enumerate"),
    ("prior_entropy", "variational-enumerate", "hard-enumerate"),
)
ORDERS = {("translation", "table1"): _TABLE1, ("translation", "table3"): _TABLE3, ("vqa", "table1"): _VQA}
CLOSE = 1.10  # K-max 5 is close when its perplexity is at most this times the exact one; the paper's worst is 1.09


def order_claims(task: str, table: str, summary: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each pair of rows whose order was published, with both orders."""
    means = {str(row["row"]): row for row in summary}
    claims = []
    for measure, larger, smaller in ORDERS.get((task, table), ()):
        theirs = [published(task, name).get(measure) for name in (larger, smaller)]
        claims.append(_order(measure, larger, smaller, means, theirs))
    return claims


def _order(
    measure: str, larger: str, smaller: str, means: Means, theirs: Sequence[float | None]
) -> dict[str, Any]:
    claim: dict[str, Any] = {
        "claim": f"{_UNITS[measure]}: {larger} > {smaller}",
        "measure": measure,
        "published": list(theirs),
        "ours": [means.get(name, {}).get(measure) for name in (larger, smaller)],
        "agrees": None,
        "clear": None,
    }
    left, right = claim["ours"]
    if left is not None and right is not None:
        claim["agrees"] = left > right
        deviations = [means[name].get(f"{measure}_deviation") for name in (larger, smaller)]
        known = [value for value in deviations if value is not None]
        # with several seeds: whether the difference exceeds what seeds alone make
        claim["clear"] = abs(left - right) > 2 * max(known) if known else None
    return claim


def kmax_claims(curve: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """K-max 5 is close to exact; one position is not enough, and more than five gain little."""
    claims = []
    points = mean_points(curve)
    for name, by_inference in points.items():
        five, exact, one = (by_inference.get(key) for key in ("kmax:5", "exact", "kmax:1"))
        if five is None or exact is None or one is None:
            continue
        theirs = [
            published("translation", name, "kmax:5").get("ppl"),
            published("translation", name).get("ppl"),
        ]
        known = name != "soft" and None not in theirs
        claims.append(
            {
                "claim": f"PPL of {name}: K-max 5 within {CLOSE - 1:.0%} of exact",
                "measure": "ppl",
                "published": theirs if known else [None, None],
                "ours": [round(five, 4), round(exact, 4)],
                "agrees": five <= CLOSE * exact,
                "clear": None,
            }
        )
        if not name.startswith("hard"):  # a prior that is certain needs no second position
            claims.append(
                {
                    "claim": f"PPL of {name}: K = 1 is worse than K = 5",
                    "measure": "ppl",
                    "published": [None, None],
                    "ours": [round(one, 4), round(five, 4)],
                    "agrees": one > five,
                    "clear": None,
                }
            )
    return claims


def mean_points(curve: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Means over seeds of the curve: row -> inference -> perplexity."""
    gathered: dict[str, dict[str, list[float]]] = {}
    for point in curve:
        gathered.setdefault(point["row"], {}).setdefault(point["inference"], []).append(point["ppl"])
    return {
        name: {inference: sum(values) / len(values) for inference, values in by_inference.items()}
        for name, by_inference in gathered.items()
    }
