"""Cells of a grid: their schedules, what makes two the same run, and what they share."""

import pytest
import yaml

from latentalign.alignment import Soft
from latentalign.errors import UserError
from latentalign.reports.grid.cells import build_cells
from latentalign.reports.grid.fingerprint import fingerprint
from latentalign.reports.grid.phase_plan import PhasePlan, RowSpec
from latentalign.reports.grid.warmups import shared_warmups
from latentalign.reports.paper.table_layouts import LAYOUTS
from latentalign.reports.paper.translation_rows import SPECS, TABLE1, TABLE3
from latentalign.training.recipe.overrides import merge
from latentalign.training.recipe.recipes import build_recipe
from latentalign.training.recipe.schedule import schedule_of
from tests.reports.corpora import RECIPE

SOFT = repr(Soft())


def cells_of(*names, seeds=(1,), **options):
    return build_cells(RECIPE, [SPECS[name] for name in names], seeds, **options)


def phases(cell):
    schedule = schedule_of(cell.recipe)
    return [(repr(phase.objective), min(phase.end, schedule.total)) for phase in schedule.reached]


def test_every_row_is_trained_for_the_same_time_after_the_same_warm_up():
    for cell in cells_of(*SPECS):
        schedule = schedule_of(cell.recipe)
        assert schedule.total == 3.0
        assert schedule.needs_posterior  # all of them, so that all can share
        if not cell.spec.model:
            assert phases(cell)[0][0] == SOFT


def test_schedules_follow_the_plan():
    soft, marginal, variational, relaxed = cells_of("soft", "marginal", "variational-enumerate", "relaxed")
    assert phases(soft) == [(SOFT, 3.0)]
    assert phases(marginal) == [(SOFT, 1.0), ("Marginal(prune=0.02)", 3.0)]  # the base's pruning
    elbo = "Elbo(estimator=Enumerate(prune=0.02))"
    assert phases(variational) == [(SOFT, 1.0), ("Wake(prune=0.02)", 2.0), (elbo, 3.0)]
    jensen, pathwise = "Hard(estimator=Pathwise(samples=1))", "Elbo(estimator=Pathwise(samples=1))"
    assert phases(relaxed) == [(jensen, 1.0), (pathwise, 2.0), (pathwise, 3.0)]
    assert [phase.trains_theta for phase in schedule_of(relaxed.recipe).phases] == [True, False, True]


def test_a_shared_warm_up_has_the_rates_of_the_rows():
    base = merge(RECIPE, {"training": {"decay": "cosine"}})
    cells = build_cells(base, [SPECS["soft"], SPECS["marginal"]], (1,))
    (warmup,) = shared_warmups(cells)["marginal-s1"]
    assert warmup.recipe.training.epochs == 1.0
    assert warmup.recipe.training.decay.epochs == 3.0
    # a cosine of another length gives other weights, even if training ends at the same place
    short = build_recipe(merge(base, {"training": {"epochs": 2.0}}))
    assert fingerprint(short, until=1.0) != fingerprint(build_recipe(base), until=1.0)


def test_a_gaussian_context_is_warmed_up_softly_by_itself():
    (cell,) = cells_of("gaussian-context")
    pathwise = "Elbo(estimator=Pathwise(samples=1))"
    assert phases(cell) == [(SOFT, 1.0), (pathwise, 2.0), (pathwise, 3.0)]
    assert [phase.trains_theta for phase in schedule_of(cell.recipe).phases] == [True, False, True]
    assert shared_warmups(cells_of(*TABLE3))["gaussian-context-s1"] == []
    row = {"estimator": cell.spec.estimator, "objective": cell.spec.objective, **cell.spec.labels}
    content = {"summary": [row], "claims": []}
    shown = LAYOUTS["table3"](content)[0].markdown()
    assert "| variational | pathwise, 1 sample, Gaussian context |" in shown


def test_rows_with_q_from_the_prior_share_a_warmup_and_say_so():
    enumerated, sampled = cells_of("enumerate-from-prior", "sample-from-prior")
    for cell in (enumerated, sampled):
        assert cell.recipe.model.inference_network.from_prior
    shared = shared_warmups([enumerated, sampled])
    assert shared[enumerated.name] == shared[sampled.name] != []
    row = {"estimator": "reinforce", "objective": "variational", **sampled.spec.labels}
    shown = LAYOUTS["table3"]({"summary": [row], "claims": []})[0].markdown()
    assert "| variational | reinforce, 1 sample, q from p |" in shown


def test_wake_goes_on_as_one_phase_and_a_chain_has_a_past_of_its_own():
    wake, chain = cells_of("wake", "chain")
    assert phases(wake) == [(SOFT, 1.0), ("Wake(prune=0.02)", 3.0)]
    assert phases(chain) == [(SOFT, 1.0), ("Marginal(prune=0.02)", 3.0)]
    assert chain.recipe.model.alignment["name"] == "chain"
    shared = shared_warmups(cells_of("soft", "wake", "chain", "variational-enumerate"))
    assert shared[chain.name] == []
    assert shared[wake.name] == shared["variational-enumerate-s1"]  # up to where the bound begins
    assert shared[wake.name][-1].position == 2.0


def test_principal_rows_have_every_seed_and_the_others_the_first():
    names = [cell.name for cell in cells_of("soft", "rws", seeds=(1, 2))]
    assert names == ["soft-s1", "rws-s1", "soft-s2"]
    assert len(cells_of("soft", "rws", seeds=(1, 2), every_seed=True)) == 4


def test_a_base_without_a_schedule_trains_the_objective_alone():
    base = {key: value for key, value in RECIPE.items() if key != "schedule"}
    (cell,) = build_cells(base, [RowSpec("hard", "hard", "enumerate", {"name": "hard"})], (4,))
    assert phases(cell) == [("Hard(estimator=Enumerate(prune=0.0))", 3.0)]
    assert cell.changes == {"objective": {"name": "hard"}}


def test_without_a_schedule_in_the_base_a_row_may_have_phases_of_its_own():
    base = {key: value for key, value in RECIPE.items() if key != "schedule"}
    before = ({"objective": "soft", "epochs": 0.5}, {"objective": "wake", "epochs": 1.0})
    rows = [
        RowSpec(name, name, "enumerate", name, needs_posterior=True, before=before)
        for name in ("variational", "vimco")
    ]
    cells = build_cells(base, rows, (1,))
    elbo = "Elbo(estimator=Enumerate(prune=0.0))"
    assert phases(cells[0]) == [(SOFT, 0.5), ("Wake(prune=0.0)", 1.5), (elbo, 3.0)]
    (shared,) = shared_warmups(cells)["variational-s1"]  # and the phases are trained once for both
    assert shared.position == 1.5


@pytest.mark.parametrize(
    ("schedule", "epochs", "message"),
    [
        (
            [{"objective": "soft", "epochs": 1.0}, {"objective": "marginal"}],
            3.0,
            "a phase for the inference network",
        ),
        (RECIPE["schedule"], 2.0, "expected more than the 2 epochs"),
    ],
)
def test_a_plan_that_cannot_be_followed_is_refused(schedule, epochs, message):
    base = merge(RECIPE, {"schedule": schedule, "training": {"epochs": epochs}})
    with pytest.raises(UserError, match=message):
        build_cells(base, SPECS.values(), (1,))


def changed(**changes):
    return build_recipe(merge(RECIPE, changes))


def test_the_fingerprint_sees_what_changes_weights_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    same = fingerprint(changed())
    assert fingerprint(changed(training={"threads": 2, "log_every": 5, "inference": "exact"})) == same
    assert fingerprint(changed(data={"folder": str(tmp_path)})) == same  # "." spelt out
    longer = [*RECIPE["schedule"][:2], {"objective": "variational", "epochs": 1.0}, {"objective": "vimco"}]
    assert fingerprint(changed(schedule=longer)) == same  # the last phase is not reached
    estimator = {"name": "variational", "estimator": {"name": "enumerate", "prune": 0.0}}
    assert fingerprint(changed(schedule=[*RECIPE["schedule"][:2], {"objective": estimator}])) == same
    others = [
        changed(seed=2),
        changed(training={"epochs": 4.0}),
        changed(training={"learning_rate": 2e-2}),
        changed(model={"dropout": 0.1}),
        changed(data={"batch_size": 8}),
        changed(schedule=[*RECIPE["schedule"][:2], {"objective": "vimco"}]),
        changed(schedule=[*RECIPE["schedule"][:2], {"objective": "variational", "train": "phi"}]),
    ]
    assert len({same, *map(fingerprint, others)}) == 8


def test_cells_share_what_they_begin_with():
    cells = cells_of(*TABLE1, *TABLE3[1:], seeds=(1, 2), every_seed=True)
    shared = shared_warmups(cells)
    chain = [(warmup.position, warmup.name.rsplit("-", 2)[0]) for warmup in shared["rws-s1"]]
    assert chain == [(1.0, "warmup-soft1"), (2.0, "warmup-soft1-wake1")]
    assert [warmup.position for warmup in shared["marginal-s1"]] == [1.0]
    assert [warmup.position for warmup in shared["soft-s1"]] == [1.0]
    assert shared["marginal-s1"][0] == shared["rws-s1"][0] != shared["rws-s2"][0]
    assert shared["relaxed-s1"] == shared["sparsemax-s1"] == []  # another model: nobody to share with
    for name, warmups in shared.items():
        cell = next(cell for cell in cells if cell.name == name)
        for warmup in warmups:
            assert fingerprint(warmup.recipe) == fingerprint(cell.recipe, until=warmup.position)


def test_a_warm_up_that_a_later_one_covers_is_left_out():
    cells = cells_of("variational-enumerate", "variational-sample")
    assert [warmup.position for warmup in shared_warmups(cells)["variational-sample-s1"]] == [2.0]


def test_a_recipe_of_a_cell_survives_yaml():
    (cell,) = cells_of("relaxed")
    again = build_recipe(yaml.safe_load(yaml.safe_dump(cell.recipe.resolved())))
    assert fingerprint(again) == fingerprint(cell.recipe)


@pytest.mark.parametrize("name", ["reproduce-multi30k", "reproduce-multi30k-transformer"])
def test_the_packaged_recipes_have_a_plan(name):
    from latentalign.training.recipe.recipes import load_recipe

    plan = PhasePlan.of(load_recipe(name))
    assert plan.epochs > sum(phase["epochs"] for phase in (*plan.warmup, *plan.inference))
    assert plan.prune
