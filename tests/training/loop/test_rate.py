"""Warm-up, decay of the learning rate, and weight decay: by formulas, through a run, and through a resumed run."""

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from latentalign.errors import UserError
from latentalign.training.check import check_recipe
from latentalign.training.loop.plateau import ValidationState
from latentalign.training.loop.rate import share_of_rate
from latentalign.training.recipe.schedule import build_schedule
from latentalign.training.recipe.sections import TrainingConfig
from latentalign.training.run.config_file import load_resumed
from tests.training.helpers import last_state, metrics, recipe, run, same_training

STEPS = 8  # an epoch of the toy task, or two with two batches an update


def shares(steps: int, **settings: Any) -> list[float]:
    config = TrainingConfig.model_validate(settings)
    return [
        share_of_rate(config, step=step, position=(step - 1) / steps, total=1.0)
        for step in range(1, steps + 1)
    ]


def test_warm_up_grows_evenly_and_then_keeps_the_rate() -> None:
    assert shares(6, warmup_steps=4) == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 1.0])
    assert shares(3) == [1.0, 1.0, 1.0]


def test_inverse_square_root_falls_from_the_end_of_the_warm_up() -> None:
    expected = [0.25, 0.5, 0.75, 1.0, math.sqrt(4 / 5), math.sqrt(4 / 6)]
    assert shares(6, warmup_steps=4, decay="inverse_sqrt") == pytest.approx(expected)


def test_cosine_falls_over_the_whole_training_to_its_floor() -> None:
    half_way = shares(4, decay="cosine")[2]
    assert half_way == pytest.approx(0.5)
    floored = TrainingConfig.model_validate({"decay": {"name": "cosine", "floor": 0.1}})
    assert share_of_rate(floored, step=99, position=3.0, total=3.0) == pytest.approx(0.1)
    assert share_of_rate(floored, step=99, position=4.5, total=3.0) == pytest.approx(0.1), (
        "begun after the end"
    )
    assert shares(4, decay="cosine", warmup_steps=2)[0] == pytest.approx(0.5)


def test_a_cosine_may_be_longer_or_shorter_than_training() -> None:
    assert shares(4, decay={"name": "cosine", "epochs": 2.0})[2] == pytest.approx(math.cos(math.pi / 8) ** 2)
    assert shares(4, decay={"name": "cosine", "epochs": 0.5})[2:] == pytest.approx([0.0, 0.0])
    whole = TrainingConfig.model_validate({"decay": "cosine"}).with_fixed_decay(3.0)
    assert share_of_rate(whole, step=9, position=1.5, total=99.0) == pytest.approx(0.5)
    assert whole.with_fixed_decay(99.0) == whole


TRAINING: dict[str, Any] = {
    "epochs": 2.0,
    "learning_rate": 0.3,
    "warmup_steps": 3,
    "weight_decay": 0.05,
    "accumulate": 2,
    "checkpoint": {"every_steps": 3, "every_minutes": None, "keep": 99},
}


@pytest.mark.parametrize("decay", ["inverse_sqrt", "cosine"])
def test_training_takes_these_rates_and_resumes_bit_for_bit(tmp_path: Path, decay: str) -> None:
    sections = {"objective": "variational", "training": {**TRAINING, "decay": decay}}
    run(tmp_path / "whole", **sections)
    state = last_state(tmp_path / "whole")
    config = TrainingConfig.model_validate(sections["training"])
    expected = [
        0.3 * share_of_rate(config, step=step, position=step - 1, total=STEPS) for step in (STEPS // 2, STEPS)
    ]
    found = [line["learning_rate"] for line in metrics(tmp_path / "whole")]
    assert found == pytest.approx(expected)
    assert {group["lr"] for group in state["optimizer_states"][0]["param_groups"]} == {found[-1]}
    assert len(state["optimizer_states"][0]["param_groups"]) == 4, "theta and phi, matrices and vectors"
    shutil.copytree(tmp_path / "whole", tmp_path / "run")
    for path in (tmp_path / "run" / "checkpoints").glob("*.ckpt"):
        if int(path.name.split("-")[1]) > 3:
            path.unlink()
    run(tmp_path / "run", resume=True, **sections)
    assert same_training(tmp_path / "run", tmp_path / "whole")


def test_halving_belongs_to_plateau_alone() -> None:
    for decay in ("plateau", "cosine"):
        config = TrainingConfig.model_validate({"learning_rate": 1.0, "decay": decay})
        schedule = build_schedule("marginal", epochs=10.0)
        learning = ValidationState(rate=1.0)
        for step in (1, 2):
            learning.judge({"nll": 2.0}, phase=schedule.last, schedule=schedule, step=step, config=config)
        assert learning.rate == (0.5 if decay == "plateau" else 1.0)


def test_only_matrices_decay(tmp_path: Path) -> None:
    """With a gradient of almost no weight beside it, decay alone moves the matrices: by (1 − rate · decay) a step."""
    settings = {"learning_rate": 1e-4, "weight_decay": 100.0, "epochs": 1 / STEPS, "eps": 1e10}
    run(tmp_path / "still", training={**settings, "weight_decay": 0.0})
    run(tmp_path / "run", training=settings)
    before, after = (last_state(tmp_path / name)["state_dict"] for name in ("still", "run"))
    assert {tensor.dim() for tensor in before.values()} >= {1, 2}
    for name, tensor in before.items():
        share = 0.99 if tensor.dim() >= 2 else 1.0
        torch.testing.assert_close(after[name], tensor * share, rtol=1e-5, atol=1e-9, msg=name)


def test_weight_decay_stays_what_it_was_when_a_run_is_resumed(tmp_path: Path) -> None:
    run(tmp_path / "run", training={"epochs": 0.5})
    with pytest.raises(UserError, match=r"training\.weight_decay was 0\.0 and would be 0\.1"):
        load_resumed(tmp_path / "run", ["training.weight_decay=0.1"])


def test_a_warm_up_longer_than_training_is_told(tmp_path: Path) -> None:
    sections = {"training": {"epochs": 0.5, "warmup_steps": 4}}
    told = "training.warmup_steps: 4 is no less than all 4 updates"
    assert any(told in line for line in check_recipe(recipe(**sections)))
    run(tmp_path / "run", **sections)
    assert told in (tmp_path / "run" / "log.txt").read_text()
    fine = {"training": {"epochs": 0.5, "warmup_steps": 3}}
    assert not any("warmup" in line for line in check_recipe(recipe(**fine)))


@pytest.mark.parametrize(
    ("training", "told"),
    [
        ({"decay": "inverse_sqrt"}, r"training: .*expected warmup_steps above 0; try 400"),
        ({"decay": "linear"}, r"training\.decay.*plateau.*inverse_sqrt.*cosine"),
        (
            {"decay": {"name": "cosine", "flor": 0.1}},
            r"training\.decay.*flor: unknown key; did you mean 'floor'",
        ),
        ({"decay": {"name": "cosine", "floor": 2.0}}, r"training\.decay.*floor.*less than or equal to 1"),
        ({"warmup_steps": -1}, r"training\.warmup_steps"),
        ({"weight_decay": -0.1}, r"training\.weight_decay"),
    ],
)
def test_mistakes_are_one_line(training: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told) as caught:
        recipe(training=training)
    assert "\n" not in str(caught.value)
