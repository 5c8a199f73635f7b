"""What a sequence of validations decides: the best weights, a lower rate, an end."""

from typing import Any

import pytest

from latentalign.training.loop.plateau import ValidationState, Verdict
from latentalign.training.recipe.schedule import build_schedule
from latentalign.training.recipe.sections import PhaseConfig, TrainingConfig

ONE = build_schedule("marginal", epochs=10.0)
THREE = build_schedule(
    "soft",
    [
        PhaseConfig(objective="soft", epochs=1.0),
        PhaseConfig(objective="wake", epochs=1.0, train="phi"),
        PhaseConfig(objective="variational"),
    ],
    10.0,
)


def config(**settings: Any) -> TrainingConfig:
    return TrainingConfig.model_validate({"learning_rate": 1.0, **settings})


def follow(values: list[float], settings: TrainingConfig) -> tuple[ValidationState, list[Verdict]]:
    learning = ValidationState(rate=settings.learning_rate)
    verdicts = [
        learning.judge({"nll": value}, phase=ONE.last, schedule=ONE, step=step, config=settings)
        for step, value in enumerate(values, start=1)
    ]
    return learning, verdicts


def test_the_rate_is_halved_whenever_validation_does_not_improve() -> None:
    learning, verdicts = follow([3.0, 2.0, 2.5, 1.9, 1.9], config())
    assert [verdict.lowers_rate for verdict in verdicts] == [False, False, True, False, True]
    assert learning.rate == 0.25


def test_patience_forgives() -> None:
    _, verdicts = follow([2.0, 2.1, 2.2, 2.3, 2.4], config(halving={"patience": 1}))
    assert [verdict.lowers_rate for verdict in verdicts] == [False, False, True, False, True]


def test_a_lowest_rate_and_no_lowering_at_all() -> None:
    learning, _ = follow([1.0] * 9, config(halving={"minimum": 0.2}))
    assert learning.rate == 0.2
    learning, verdicts = follow([1.0] * 9, config(halving={"factor": 1.0}))
    assert learning.rate == 1.0
    assert not any(verdict.lowers_rate for verdict in verdicts)


def test_the_newest_weights_are_kept_where_the_recipe_says_so() -> None:
    settings = config(keep_weights="last", early_stopping={"patience": 2})
    learning, verdicts = follow([2.0, 2.1, float("nan")], settings)
    assert [verdict.is_kept for verdict in verdicts] == [True, True, False]
    assert [verdict.is_best for verdict in verdicts] == [True, False, False]
    assert [verdict.stops for verdict in verdicts] == [False, False, True], "patience still asks for the best"
    assert (learning.best_step, learning.kept_step) == (1, 2)
    best, _ = follow([2.0, 2.1], config())
    assert (best.best_step, best.kept_step) == (1, 1)


def test_a_state_of_an_earlier_version_kept_its_best_weights() -> None:
    learning, _ = follow([2.0, 2.1], config())
    state = learning.state()
    del state["kept_step"]
    again = ValidationState(rate=1.0)
    again.restore(state, config())
    assert again.kept_step == 1


def test_weights_as_good_as_the_best_replace_it_but_are_no_improvement() -> None:
    learning, verdicts = follow([2.0, 2.0, 2.1], config(early_stopping={"patience": 2}))
    assert [verdict.is_best for verdict in verdicts] == [True, True, False]
    assert [verdict.stops for verdict in verdicts] == [False, False, True]
    assert learning.best_step == 2


def test_a_validation_that_is_not_finite_is_never_the_best() -> None:
    learning, verdicts = follow([2.0, float("nan"), float("inf")], config())
    assert [verdict.is_best for verdict in verdicts] == [True, False, False]
    assert learning.best == 2.0


def test_every_phase_starts_afresh_and_only_the_last_one_stops_early() -> None:
    settings = config(early_stopping={"patience": 1})
    learning = ValidationState(rate=1.0)

    def judge(phase: int, nll: float, elbo: float, step: int) -> Verdict:
        results = {"nll": nll, "elbo": elbo}
        return learning.judge(results, phase=THREE.phases[phase], schedule=THREE, step=step, config=settings)

    assert judge(0, 3.0, -9.0, 1).is_best
    assert not judge(0, 3.1, -9.0, 2).stops, "a warm-up does not end training"
    # q alone: the NLL stands still, the bound is what improves
    assert judge(1, 3.1, -5.0, 3).is_best
    assert judge(1, 3.1, -4.0, 4) == Verdict(is_best=True, is_kept=True)
    assert not judge(1, 3.1, -4.5, 5).is_best
    # worse than the warm-up's best, yet the best of the phase that counts
    assert judge(2, 3.2, -4.0, 6).is_best
    assert judge(2, 3.3, -3.9, 7).stops


def test_the_state_comes_back() -> None:
    settings = config(early_stopping={"patience": 5})
    learning, _ = follow([3.0, 2.0, 2.5], settings)
    other = ValidationState(rate=1.0)
    other.restore(learning.state(), settings)
    assert other == learning
    faster = ValidationState(rate=4.0)
    faster.restore(learning.state(), config(learning_rate=4.0))
    assert faster.rate == 4.0, "a rate that was changed in the recipe counts from now on"
    assert other.rate == pytest.approx(0.5)
