"""Phases: when each begins, what it trains, and where training ends."""

import pytest

from latentalign.alignment.learning.objectives import Elbo, Marginal, Soft, Wake
from latentalign.errors import UserError
from latentalign.training.recipe.schedule import DEFAULT_EPOCHS, build_schedule
from latentalign.training.recipe.sections import PhaseConfig

SOFT = PhaseConfig(objective="soft", epochs=1.5)
WAKE = PhaseConfig(objective="wake", epochs=0.5, train="phi")
ELBO = PhaseConfig(objective="variational")


def test_without_a_schedule_there_is_one_phase() -> None:
    schedule = build_schedule("marginal")
    assert isinstance(schedule.at(0.0).objective, Marginal)
    assert schedule.total == DEFAULT_EPOCHS
    assert not schedule.needs_posterior


def test_phases_follow_each_other() -> None:
    schedule = build_schedule("soft", [SOFT, WAKE, ELBO], 5.0)
    kinds = [type(schedule.at(position).objective) for position in (0.0, 1.49, 1.5, 1.99, 2.0, 4.99, 5.0)]
    assert kinds == [Soft, Soft, Wake, Wake, Elbo, Elbo, Elbo]
    assert schedule.needs_posterior
    assert not schedule.at(1.5).trains_theta
    assert schedule.at(1.5).trains_phi
    assert schedule.total == 5.0


def test_the_schedule_says_how_long_unless_the_recipe_does() -> None:
    closed = [SOFT, PhaseConfig(objective="marginal", epochs=2.0)]
    assert build_schedule("soft", closed).total == 3.5
    assert build_schedule("soft", closed, 6.0).last.name == "marginal"
    assert build_schedule("soft", closed, 6.0).at(5.9).name == "marginal"


def test_a_phase_that_is_not_reached_still_counts_for_the_model() -> None:
    schedule = build_schedule("soft", [SOFT, WAKE, ELBO], 1.0)
    assert schedule.last.name == "soft"
    assert [phase.name for phase in schedule.reached] == ["soft"]
    assert schedule.needs_posterior


def test_only_the_last_phase_may_be_open() -> None:
    with pytest.raises(UserError, match=r"schedule\.0\.epochs: missing"):
        build_schedule("soft", [ELBO, SOFT])


def test_phi_alone_needs_an_inference_network() -> None:
    with pytest.raises(UserError, match=r"schedule\.0\.train.*'soft'"):
        build_schedule("soft", [PhaseConfig(objective="soft", epochs=1.0, train="phi")])


def test_an_unknown_objective_is_named_with_its_place() -> None:
    with pytest.raises(UserError, match=r"^objective: .*did you mean 'marginal'"):
        build_schedule("marginl")
    with pytest.raises(UserError, match=r"^schedule\.1: .*did you mean 'reinforce'"):
        build_schedule("soft", [SOFT, PhaseConfig(objective={"name": "hard", "estimator": "reinforc"})])


def test_a_mistyped_objective_is_told_although_a_schedule_takes_its_place() -> None:
    with pytest.raises(UserError, match=r"^objective: .*sft.*soft"):
        build_schedule("sft", [SOFT, WAKE, ELBO])
