"""Goals, tables and growth of the benchmarks: what needs no measurement."""

import math
from pathlib import Path

import pytest
import torch
from benchmarks.translation.decoding import exponent
from benchmarks.translation.goals import Goal, derive, judge_all, lines
from benchmarks.translation.growth import EXACT, AsIfTrained, _batch
from benchmarks.translation.operators import largest
from benchmarks.translation.page import table, write_page
from benchmarks.translation.peer import _renumber, _stretches, mixed
from benchmarks.translation.setting import Stopwatch, summary, take_turns

from latentalign.alignment import AlignmentProblem, Marginal
from latentalign.translation.config import ModelConfig


def watch(work: float, seconds: float) -> Stopwatch:
    found = Stopwatch()
    found.work, found.seconds, found.processor = work, seconds, seconds
    return found


@pytest.mark.parametrize(
    ("value", "at_least", "reached"), [(0.5, True, True), (0.4, True, False), (0.4, False, True)]
)
def test_a_goal_is_reached_or_not(value: float, at_least: bool, reached: bool) -> None:
    found = Goal("speed", ("a", "b"), 0.45, at_least).judge({"a": {"b": value}})
    assert found is not None
    assert found["reached"] is reached
    assert ("NOT reached" in lines([found])[0]) is not reached


def test_what_was_not_measured_has_no_verdict() -> None:
    assert Goal("speed", ("a", "b"), 0.45).judge({"a": {}}) is None
    assert Goal("speed", ("a", "b"), 0.45).judge({"a": {"b": None}}) is None
    assert judge_all({"peer": {"skipped": "no network"}}) == []


def test_the_released_code_is_compared_through_the_peer_and_at_its_own_size() -> None:
    training = {
        "prune": {"marginal": 0.02, "variational": 0.02},
        "decoder_size": 512,
        "gradients": {"marginal": [{"prune": 0.02, "relative_error": 0.004}], "variational": []},
        "target_size": 3000,
        "objectives": {"marginal, pruned": {"ratio": 0.4, "peak_mib": 1000.0}},
        "released": {"tokens_per_second": 100.0, "joeynmt_tokens_per_second": 500.0, "peak_gb": 8.0},
    }
    peer = {"target_size": 3000, "training_over_own_batches": {"latentalign": {"ratio": 4.0}}}
    found = derive({"training": training, "peer": peer})
    assert found["speed_over_released"] == pytest.approx(0.4 * 4 / 0.2)
    assert found["memory_of_released"] == pytest.approx(8e9 / (1000 * 2**20))
    assert found["marginal_error"] == 0.004
    assert found["variational_error"] is None
    assert "speed_over_released" not in derive({"training": {**training, "decoder_size": 256}, "peer": peer})
    assert "speed_over_released" not in derive({"training": training, "peer": {**peer, "target_size": 1800}})


def test_ratios_are_taken_within_a_round() -> None:
    mine, theirs = [watch(10, 1), watch(10, 4), watch(10, 1)], [watch(10, 2), watch(10, 8), watch(10, 1)]
    found = summary(mine, theirs)
    assert found["ratios"] == [2.0, 2.0, 1.0]
    assert found["ratio"] == 2.0
    assert found["per_second"] == 10.0


def test_contenders_take_turns() -> None:
    order: list[str] = []

    def contender(name: str) -> Stopwatch:
        order.append(name)
        return watch(1, 1)

    take_turns({name: lambda name=name: contender(name) for name in "ab"}, 3)
    assert "".join(order) == "ababab"


def test_exponents() -> None:
    sizes = [1, 5, 10, 50]
    assert exponent(sizes, [3 * size**1.5 for size in sizes]) == pytest.approx(1.5)
    assert math.isnan(exponent([10], [1.0]))


def test_every_update_is_made_once() -> None:
    assert list(_stretches(10, 3)) == [(0, 3), (3, 7), (7, 10)]


def test_pieces_keep_their_meaning_in_the_peer() -> None:
    assert _renumber([0, 1, 2, 3, 17]) == [1, 0, 2, 3, 17]


def test_the_profile_adds_up() -> None:
    found = largest([("a", 1.0), ("b", 6.0), ("c", 2.0), ("d", 1.0)], shown=2)
    assert found == [
        {"operator": "b", "share": 0.6},
        {"operator": "c", "share": 0.2},
        {"operator": "all others", "share": 0.2},
    ]


def test_tables_and_page(tmp_path: Path) -> None:
    assert table(("a", "b"), [["x", "1"]]) == ["| a | b |", "| --- | ---: |", "| x | 1 |"]
    rows = [
        {
            "objective": name,
            "length": length,
            "vocabulary": 4000,
            "seconds_per_token": 0.001,
            "time_over_soft": 1.0,
            "peak_mib": 500.0,
            "peak_over_soft": 1.0,
            "extra_mib": 20.0,
            "extra_over_soft": 1.0,
        }
        for name in ("soft", *EXACT)
        for length in (10, 25)
    ]
    results = {
        "growth": {"rows": rows, "largest_peak_over_soft": 1.6, "largest_extra_over_soft": 1.0},
        "peer": {"skipped": "no network"},
        "startup": {"help_seconds": 0.3},
    }
    write_page(results, tmp_path)
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "| exact objectives: largest memory over soft's | 1.6 | ≤ 1.5 | **no** |" in text
    assert "| latentalign --help: seconds | 0.3 | ≤ 0.5 | yes |" in text
    assert "Not measured: no network." in text
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")


def test_the_model_of_growth_looks_trained() -> None:
    torch.manual_seed(0)
    config = ModelConfig(embedding_size=32, memory_size=64, decoder_size=256, attention_size=32)
    model = AsIfTrained(config, source_size=500, target_size=500, needs_posterior=True).eval()
    problem = model.problem(_batch(2, 20, 500), with_posterior=True)
    bound = Marginal(prune=0.02)(AlignmentProblem(problem.prior, problem.likelihood))
    assert 0.5 < float(bound.diagnostics["prior_entropy"].mean()) < 1.1
    assert 0.5 < float(problem.posterior.entropy().detach().mean()) < 1.1
    assert float(bound.value.exp().mean()) > 0.4


def test_the_peers_own_batches_hold_the_same_pairs_in_another_order() -> None:
    batches = [[[[n], [n, n]], [[-n], [-n, -n]]] for n in range(1, 40)]
    found = mixed(batches)
    assert [len(sources) for sources, _ in found] == [2] * 39
    pairs = [(s, t) for sources, targets in found for s, t in zip(sources, targets, strict=True)]
    assert all(len(s) == len(t) and s[0] == -t[0] for s, t in pairs)
    assert pairs != (ordered := [(s, t) for b in batches for s, t in zip(*b, strict=True)])
    assert sorted(pairs) == sorted(ordered)
