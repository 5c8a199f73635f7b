"""A forked warm-up goes on as if it had been trained by the fork's schedule from the start."""

import filecmp
import json

import pytest
import torch

from latentalign.errors import UserError
from latentalign.training.recipe.recipes import build_recipe
from latentalign.training.run.checkpoints import list_checkpoints, load_checkpoint
from latentalign.training.run.config_file import load_config
from latentalign.training.run.forking import fork_run
from latentalign.training.run.journal import read_metrics
from latentalign.training.train import train
from tests.training import copying  # noqa: F401  registers the task

SOFT, WAKE = {"objective": "soft", "epochs": 2.0}, {"objective": "wake", "epochs": 1.0}
VARIATIONAL = [SOFT, WAKE, {"objective": {"name": "variational", "estimator": "reinforce"}}]
MARGINAL = [SOFT, {"objective": "marginal", "epochs": 2.0}, {"objective": "wake"}]
LONGER = [{"objective": "soft", "epochs": 4.0}, {"objective": "wake"}]
QUIET = {"log_every": 1000, "threads": 1, "checkpoint": {"every_minutes": None}}


def recipe(schedule, epochs, seed=3, **more):
    training = {"epochs": epochs, "learning_rate": 1e-2, **QUIET, **more}
    return build_recipe(
        {"task": "copy", "seed": seed, "data": {"train": 24}, "schedule": schedule, "training": training}
    )


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fork") / "warm"
    train(recipe(VARIATIONAL, 2.0), folder, echo=False)
    return folder


@pytest.mark.parametrize("schedule", [VARIATIONAL, MARGINAL, LONGER], ids=["variational", "marginal", "soft"])
def test_a_fork_equals_the_uninterrupted_run(warm, tmp_path, schedule):
    before = sorted(path.relative_to(warm) for path in warm.rglob("*"))
    forked = fork_run(warm, tmp_path / "fork", schedule=schedule, epochs=4.0)
    train(forked, tmp_path / "fork", resume=True, echo=False)
    train(recipe(schedule, 4.0), tmp_path / "whole", echo=False)
    assert filecmp.cmp(
        tmp_path / "fork" / "model.safetensors", tmp_path / "whole" / "model.safetensors", shallow=False
    )
    one, other = (load_checkpoint(list_checkpoints(tmp_path / name)[0][1]) for name in ("fork", "whole"))
    assert one["place"] == other["place"]
    assert all(torch.equal(value, other["state_dict"][name]) for name, value in one["state_dict"].items())
    assert one["learning"]["rate"] == other["learning"]["rate"]
    assert load_config(tmp_path / "fork").resolved() == load_config(tmp_path / "whole").resolved()
    # validation after the fork is by the inference that fits the fork's own last objective
    after = [
        [_measured(line) for line in _lines(tmp_path / name) if line["epoch"] > 2]
        for name in ("fork", "whole")
    ]
    assert after[0] == after[1]
    assert len(after[0]) == 2
    assert sorted(path.relative_to(warm) for path in warm.rglob("*")) == before


def test_a_fork_under_a_cosine_has_the_rates_of_the_whole(tmp_path):
    train(recipe(VARIATIONAL, 2.0, decay={"name": "cosine", "epochs": 4.0}), tmp_path / "warm", echo=False)
    forked = fork_run(tmp_path / "warm", tmp_path / "fork", schedule=MARGINAL, epochs=4.0)
    train(forked, tmp_path / "fork", resume=True, echo=False)
    train(recipe(MARGINAL, 4.0, decay="cosine"), tmp_path / "whole", echo=False)
    weights = [tmp_path / name / "model.safetensors" for name in ("fork", "whole")]
    assert filecmp.cmp(*weights, shallow=False)
    # had its own rate fallen to nothing after two epochs, a fork of four would have another past
    train(recipe(VARIATIONAL, 2.0, decay="cosine"), tmp_path / "short", echo=False)
    with pytest.raises(UserError, match="falls over all of its 2 epochs, the fork would have 4"):
        fork_run(tmp_path / "short", tmp_path / "no", schedule=MARGINAL, epochs=4.0)


def _lines(folder):
    return read_metrics(folder / "metrics.jsonl")


def _measured(line):
    return {name: value for name, value in line.items() if "seconds" not in name}


def test_a_warm_up_that_ends_within_a_step_can_be_forked(tmp_path):
    warmup = {"objective": "soft", "epochs": 1.1}  # the step that begins before 1.1 ends after it
    schedule = [warmup, {"objective": "marginal", "epochs": 0.9}, {"objective": "wake"}]
    patient = {"halving": {"patience": 99}}  # the warm-up is measured where it ends, which may lower the rate
    train(recipe([warmup, {"objective": "wake"}], 1.1, **patient), tmp_path / "warm", echo=False)
    content = load_checkpoint(list_checkpoints(tmp_path / "warm")[0][1])
    assert content["place"]["position"] > 1.1 + 1e-6
    forked = fork_run(tmp_path / "warm", tmp_path / "fork", schedule=schedule, epochs=2.0)
    train(forked, tmp_path / "fork", resume=True, echo=False)
    train(recipe(schedule, 2.0, **patient), tmp_path / "whole", echo=False)
    one, other = (load_checkpoint(list_checkpoints(tmp_path / name)[0][1]) for name in ("fork", "whole"))
    assert one["place"] == other["place"]
    assert all(torch.equal(value, other["state_dict"][name]) for name, value in one["state_dict"].items())


def test_a_fork_of_a_fork_goes_on(warm, tmp_path):
    middle = fork_run(warm, tmp_path / "middle", schedule=VARIATIONAL, epochs=3.0)
    train(middle, tmp_path / "middle", resume=True, echo=False)
    gumbel = [SOFT, WAKE, {"objective": {"name": "variational", "estimator": "gumbel"}}]
    forked = fork_run(tmp_path / "middle", tmp_path / "end", schedule=gumbel, epochs=4.0)
    train(forked, tmp_path / "end", resume=True, echo=False)
    assert [line["phase"] for line in _lines(tmp_path / "end")] == [
        "soft",
        "soft",
        "wake",
        "variational-gumbel",
    ]


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (
            [{"objective": "marginal", "epochs": 2.0}, WAKE],
            "begins with soft until epoch 2, received marginal",
        ),
        ([{**SOFT, "epochs": 1.0}, WAKE], "received soft until epoch 1, wake until epoch 2"),
        ([{**SOFT, "train": "theta"}, WAKE], "begins with"),
        ([{"objective": "soft"}], "has an inference network, the fork would have none"),
        ([SOFT, {**WAKE, "epoch": 1}], "epoch: unknown key"),
        (
            [
                SOFT,
                {
                    "objective": {
                        "name": "variational",
                        "estimator": {"name": "reinforce", "baseline": "running-mean"},
                    }
                },
            ],
            "running means",
        ),
    ],
)
def test_another_past_is_refused(warm, tmp_path, schedule, message):
    with pytest.raises(UserError, match=message):
        fork_run(warm, tmp_path / "fork", schedule=schedule)
    assert not list(tmp_path.iterdir())


def test_a_folder_in_use_and_a_run_without_checkpoint_are_refused(warm, tmp_path):
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("mine")
    with pytest.raises(UserError, match="used: the folder exists"):
        fork_run(warm, tmp_path / "used", schedule=VARIATIONAL)
    empty = tmp_path / "empty"
    fork_run(warm, empty, schedule=VARIATIONAL)
    for _, path in list_checkpoints(empty):
        path.write_bytes(b"damaged")
    with pytest.raises(UserError, match="no good checkpoint"):
        fork_run(empty, tmp_path / "next", schedule=VARIATIONAL)
    with pytest.raises(UserError, match="no such run folder"):
        fork_run(tmp_path / "nowhere", tmp_path / "next", schedule=VARIATIONAL)
    assert json.loads((empty / "environment.json").read_text())
