"""What each figure has to reach, and whether it does."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Goal:
    """A figure, found by its place in the results."""

    text: str
    place: Sequence[str]
    limit: float
    at_least: bool = True

    def judge(self, results: dict[str, Any]) -> dict[str, Any] | None:
        """The figure beside its goal; None where it was not measured."""
        value: Any = results
        for key in self.place:
            if not isinstance(value, dict) or value.get(key) is None:
                return None
            value = value[key]
        reached = value >= self.limit if self.at_least else value <= self.limit
        return {
            "figure": self.text,
            "value": value,
            "goal": f"{'≥' if self.at_least else '≤'} {self.limit:g}",
            "reached": bool(reached),
        }


def _training(name: str, limit: float) -> Goal:
    return Goal(f"{name}: tokens/s over soft's", ("training", "objectives", name, "ratio"), limit)


def _decoding(state: str, inference: str, limit: float) -> Goal:
    place = ("decoding", "inference", state, inference, "time_over_soft")
    trained = {
        "soft": "trained soft",
        "wake": "one epoch of the exact marginal",
        "finished": "trained to the end by the exact marginal",
    }[state]
    return Goal(f"{inference} decoding: time over soft's ({trained})", place, limit, at_least=False)


GOALS = (
    _training("marginal, pruned", 0.45),
    _training("variational, pruned", 0.45),
    _training("variational, 1 sample", 0.65),
    Goal("pruned marginal: relative error of the gradient", ("derived", "marginal_error"), 0.01, False),
    Goal("pruned variational: relative error of the gradient", ("derived", "variational_error"), 0.01, False),
    Goal("pruned marginal: tokens/s over the released code's", ("derived", "speed_over_released"), 8.0),
    Goal("pruned marginal: memory of the released code over ours", ("derived", "memory_of_released"), 4.0),
    *(
        Goal(f"soft training {how}: tokens/s over JoeyNMT's{where}", ("peer", section, name, "ratio"), limit)
        for section, where in (
            ("training_over_own_batches", ""),
            ("training", ", given our batches"),
        )
        for how, name, limit in (
            ("with input feeding", "latentalign, input feeding", 1.5),
            ("without", "latentalign", 3.0),
        )
    ),
    Goal("beam 10: sentences/s over JoeyNMT's", ("peer", "decoding", "latentalign", "ratio"), 2.0),
    Goal(
        "beam 10 with input feeding: sentences/s over JoeyNMT's",
        ("peer", "decoding", "latentalign, input feeding", "ratio"),
        2.0,
    ),
    *(_decoding(state, "kmax:5", 1.3) for state in ("soft", "wake", "finished")),
    *(_decoding(state, "exact", 2.5) for state in ("soft", "wake", "finished")),
    Goal(
        "soft training at d=512: share of a matrix product's speed",
        ("machine", "rates", "d=512", "ratio"),
        0.6,
    ),
    Goal("exact objectives: largest memory over soft's", ("growth", "largest_peak_over_soft"), 1.5, False),
    *(
        Goal(f"{name} decoding: time grows with beam^e, e", ("decoding", "beam_exponent", name), 1.2, False)
        for name in ("soft", "kmax:5", "exact")
    ),
    *(
        Goal(
            f"{name} decoding: time a sentence grows with batch^e, e",
            ("decoding", "batch_exponent", name),
            0.05,
            False,
        )
        for name in ("soft", "kmax:5", "exact")
    ),
    Goal("latentalign --help: seconds", ("startup", "help_seconds"), 0.5, False),
    Goal("translate one sentence: seconds", ("startup", "translate_seconds"), 4.0, False),
    Goal("reading and tokenising: pairs a minute a core", ("startup", "pairs_per_minute"), 50_000.0),
)


def derive(results: dict[str, Any]) -> dict[str, Any]:
    """Figures that come from several measurements."""
    training, peer = results.get("training"), results.get("peer", {})
    if training is None:
        return {}
    derived: dict[str, Any] = {}
    for kind in ("marginal", "variational"):
        used = training["prune"][kind]
        rows = [row for row in training["gradients"][kind] if row["prune"] == used]
        derived[f"{kind}_error"] = rows[0]["relative_error"] if rows else None
    if training["decoder_size"] == 512:  # the size at which the released code was measured
        pruned, released = training["objectives"]["marginal, pruned"], training["released"]
        derived["memory_of_released"] = 1e9 * released["peak_gb"] / (2**20 * pruned["peak_mib"])
        if peer.get("target_size") == training["target_size"]:
            # each a ratio within a run: ours to soft, soft to JoeyNMT as shipped (as there), the released code to it
            over_peer = pruned["ratio"] * peer["training_over_own_batches"]["latentalign"]["ratio"]
            slower = released["tokens_per_second"] / released["joeynmt_tokens_per_second"]
            derived["speed_over_released"] = over_peer / slower
    return derived


def judge_all(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Every goal whose figure was measured."""
    judged = [goal.judge({**results, "derived": derive(results)}) for goal in GOALS]
    return [row for row in judged if row is not None]


def figure(value: float) -> str:
    """Three digits that matter."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def lines(judged: list[dict[str, Any]]) -> list[str]:
    """A line a goal, for the terminal."""
    return [
        f"{row['figure']:<62}{figure(row['value']):>10}  {row['goal']:<9} "
        f"{'reached' if row['reached'] else 'NOT reached'}"
        for row in judged
    ]
