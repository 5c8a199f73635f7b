"""Training the toy task from start to end: what is learnt, what is written, what each phase moves."""

import csv
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from latentalign.errors import UserError
from latentalign.training.loop.evaluation import evaluate_model
from latentalign.training.loop.randomness import derive_seed
from latentalign.training.trained_run import load
from tests.training.copying import CopyData
from tests.training.helpers import last_state, metrics, recipe, run, same, same_training, weights


def test_training_learns_and_leaves_a_complete_run(tmp_path: Path) -> None:
    trained = run(tmp_path / "run", training={"epochs": 12.0, "validate_every": 3.0})
    lines = metrics(tmp_path / "run")
    assert [line["epoch"] for line in lines] == [3, 6, 9, 12]
    assert lines[-1]["nll"] < 0.7 * lines[0]["nll"] < 1.2
    assert lines[-1]["ppl"] == pytest.approx(math.exp(lines[-1]["nll"]))
    assert trained.steps == 96
    assert trained.best == min(line["nll"] for line in lines)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {
        "config.yaml", "environment.json", "labels.txt", "model.safetensors", "metrics.jsonl", "log.txt",
        "checkpoints", "logs", "run.json", ".lock",
    }  # fmt: skip
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "read 64 examples" in log
    assert "parameters: theta 293 (the model), phi 0" in log
    facts = json.loads((tmp_path / "run" / "environment.json").read_text())[0]
    assert facts["seed"] == 1
    assert facts["versions"]["torch"] == torch.__version__
    assert facts["host"]["cores"] >= 1


def test_loggers_get_bound_kl_entropy_and_speed(tmp_path: Path) -> None:
    run(tmp_path / "run", objective="variational", training={"epochs": 1.0})
    (table,) = (tmp_path / "run" / "logs" / "csv").rglob("metrics.csv")
    with table.open() as stream:
        rows = list(csv.DictReader(stream))
    trained = [row for row in rows if row["train/bound"]]
    assert len(trained) == 3  # steps 3, 6 and the last
    assert all(float(row["train/tokens_per_second"]) > 0 for row in trained)
    assert all(float(row["train/kl"]) > 0 and float(row["train/prior_entropy"]) > 0 for row in trained)
    assert float(trained[0]["train/loss"]) == pytest.approx(-float(trained[0]["train/bound"]))
    assert [row for row in rows if row.get("valid/nll")]
    assert list((tmp_path / "run" / "logs" / "tensorboard").rglob("events.out.tfevents.*"))


@pytest.mark.parametrize(
    "objective",
    [
        "soft",
        "hard",
        {"name": "hard", "estimator": {"name": "reinforce", "baseline": "running-mean"}},
        {"name": "variational", "estimator": {"name": "reinforce", "samples": 2}},
        {"name": "variational", "estimator": "gumbel"},
        "wake",
        "rws",
        "vimco",
        "em",
        {"name": "svi", "steps": 2, "start": "posterior"},
    ],
    ids=str,
)
def test_any_objective_trains_and_repeats(tmp_path: Path, objective: Any) -> None:
    settings = {"objective": objective, "data": {"train": 24}, "training": {"epochs": 1.0, "log_every": 50}}
    run(tmp_path / "a", **settings)
    run(tmp_path / "b", **settings)
    assert same_training(tmp_path / "a", tmp_path / "b")
    start = recipe(**settings)
    torch.manual_seed(derive_seed(start.seed, "model"))  # where the run began
    model = start.task.build_model(start.model, None, needs_posterior=bool(load(tmp_path / "a").model.phi()))
    learnt = weights(tmp_path / "a")
    still = [name for name, begun in model.named_parameters() if torch.equal(learnt[name], begun)]
    assert still == [], "every weight moves, those of the inference network included"


def test_a_run_begins_at_the_weights_of_its_seed(tmp_path: Path) -> None:
    run(tmp_path / "run", seed=4, training={"epochs": 0.1, "learning_rate": 1e-30})
    start = recipe(seed=4)
    for seed, expected in ((4, True), (5, False)):
        torch.manual_seed(derive_seed(seed, "model"))
        model = start.task.build_model(start.model, None, needs_posterior=False)
        assert same(weights(tmp_path / "run"), dict(model.state_dict())) == expected


def test_another_seed_is_another_run(tmp_path: Path) -> None:
    run(tmp_path / "a", seed=1, training={"epochs": 0.5})
    run(tmp_path / "b", seed=2, training={"epochs": 0.5})
    assert not same(weights(tmp_path / "a"), weights(tmp_path / "b"))


def test_phases_train_what_they_say(tmp_path: Path) -> None:
    schedule = [
        {"objective": "soft", "epochs": 0.5},
        {"objective": "wake", "epochs": 0.5, "train": "phi"},
        {"objective": "variational", "epochs": 0.5, "train": "theta"},
    ]
    each = {"checkpoint": {"every_steps": 4, "keep": 9}, "validate_every": None}
    run(tmp_path / "run", schedule=schedule, training={"epochs": None, **each})
    from latentalign.training.run.checkpoints import list_checkpoints, load_checkpoint

    states = {step: load_checkpoint(path)["state_dict"] for step, path in list_checkpoints(tmp_path / "run")}
    assert sorted(states) == [4, 8, 12]

    def moved(before: int, after: int) -> dict[str, bool]:
        return {
            part: any(
                not torch.equal(states[before][name], states[after][name])
                for name in states[before]
                if name.startswith("model.inference") == (part == "phi")
            )
            for part in ("theta", "phi")
        }

    assert moved(4, 8) == {"theta": False, "phi": True}
    assert moved(8, 12) == {"theta": True, "phi": False}
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "phase 1: soft until epoch 0.5, trains theta\n" in log
    assert "phase 2: wake until epoch 1, trains phi\n" in log


def test_accumulating_small_batches_equals_one_large_batch(tmp_path: Path) -> None:
    settings = {"model": {"dropout": 0.0}, "objective": "variational"}
    run(tmp_path / "large", data={"batch": 8}, training={"epochs": 2.0}, **settings)
    run(tmp_path / "small", data={"batch": 2}, training={"epochs": 2.0, "accumulate": 4}, **settings)
    large, small = weights(tmp_path / "large"), weights(tmp_path / "small")
    for name in large:
        torch.testing.assert_close(small[name], large[name], atol=2e-6, rtol=1e-5)


def test_the_gradient_is_clipped_by_its_norm(tmp_path: Path) -> None:
    run(tmp_path / "free", training={"epochs": 0.1, "gradient_clip": 0.0})
    run(tmp_path / "tight", training={"epochs": 0.1, "gradient_clip": 1e-3})
    moments = [last_state(tmp_path / name)["optimizer_states"][0]["state"] for name in ("free", "tight")]
    norms = [
        math.sqrt(sum(float((state["exp_avg"] / 0.1).pow(2).sum()) for state in moment.values()))
        for moment in moments
    ]
    assert norms[0] > 0.01
    assert norms[1] == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("clip", [0.0, 0.02])
def test_wake_moves_the_model_exactly_as_the_marginal_does(tmp_path: Path, clip: float) -> None:
    """θ is clipped by its own norm: how large the gradient of φ is does not matter to it."""
    settings = {"model": {"dropout": 0.0}, "training": {"epochs": 2.0, "gradient_clip": clip}}
    for objective in ("marginal", "wake"):
        run(tmp_path / objective, objective=objective, **settings)
    theta, both = weights(tmp_path / "marginal"), weights(tmp_path / "wake")
    assert len(both) > len(theta)  # φ besides
    for name in theta:
        torch.testing.assert_close(both[name], theta[name], atol=0.0, rtol=0.0)


def test_bf16_trains(tmp_path: Path) -> None:
    run(tmp_path / "run", training={"epochs": 3.0, "precision": "bf16"})
    lines = metrics(tmp_path / "run")
    assert lines[-1]["nll"] < lines[0]["nll"]
    assert {tensor.dtype for tensor in weights(tmp_path / "run").values()} == {torch.float32}


def test_deterministic_gives_the_same_weights_twice(tmp_path: Path) -> None:
    for name in ("a", "b"):
        run(tmp_path / name, objective="variational", training={"epochs": 1.0, "deterministic": True})
    assert same_training(tmp_path / "a", tmp_path / "b")
    assert not torch.are_deterministic_algorithms_enabled(), "the setting ends with the run"


def test_a_relaxed_model_is_validated_by_sampling(tmp_path: Path) -> None:
    schedule = [
        {"objective": {"name": "hard", "estimator": "pathwise"}, "epochs": 0.5},
        {"objective": {"name": "variational", "estimator": "pathwise"}, "epochs": 0.5},
    ]
    run(tmp_path / "run", model={"prior": "dirichlet"}, schedule=schedule, training={"epochs": None})
    assert metrics(tmp_path / "run")[-1]["inference"] == "sample:20"
    assert "elbo" in metrics(tmp_path / "run")[-1]


def test_soft_attention_is_validated_as_soft(tmp_path: Path) -> None:
    run(tmp_path / "run", objective="soft", training={"epochs": 0.2})
    assert metrics(tmp_path / "run")[-1]["inference"] == "soft"
    run(tmp_path / "exact", objective="soft", training={"epochs": 0.2, "inference": "exact"})
    assert metrics(tmp_path / "exact")[-1]["inference"] == "exact"


def test_the_best_weights_are_kept_and_evaluation_agrees(tmp_path: Path) -> None:
    # a rate far too high: validation gets worse after the first epoch
    run(tmp_path / "run", training={"epochs": 5.0, "learning_rate": 0.5, "halving": {"factor": 1.0}})
    lines = metrics(tmp_path / "run")
    best = min(lines, key=lambda line: line["nll"])
    assert best["step"] < lines[-1]["step"], "the best is not the last"
    loaded = load(tmp_path / "run")
    results = evaluate_model(loaded.model, CopyData(16, 2, 8), "exact", seed=1)
    assert results["nll"] == best["nll"] < lines[-1]["nll"]
    assert results["accuracy"] == best["accuracy"]


def test_training_may_need_no_validation_but_the_last(tmp_path: Path) -> None:
    run(tmp_path / "run", training={"epochs": 2.0, "validate_every": None})
    assert len(metrics(tmp_path / "run")) == 1
    assert load(tmp_path / "run").model.training is False


def test_validation_by_steps(tmp_path: Path) -> None:
    run(tmp_path / "run", training={"epochs": 2.0, "validate_every_steps": 5})
    assert [line["step"] for line in metrics(tmp_path / "run")] == [5, 10, 15, 16]


def test_a_folder_that_exists_is_refused(tmp_path: Path) -> None:
    run(tmp_path / "run", training={"epochs": 0.1})
    before = (tmp_path / "run" / "log.txt").read_bytes()
    with pytest.raises(UserError, match=r"--out .*exists"):
        run(tmp_path / "run")
    assert (tmp_path / "run" / "log.txt").read_bytes() == before
    run(tmp_path / "run", overwrite=True, training={"epochs": 0.2})
    assert len(list(tmp_path.iterdir())) == 1, "nothing is left beside the new run"
    assert last_state(tmp_path / "run")["place"]["step"] == 2


def test_only_runs_are_overwritten(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("x")
    with pytest.raises(UserError, match="not a run folder"):
        run(tmp_path / "precious", overwrite=True)
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="expected a folder, found a file"):
        run(tmp_path / "file", overwrite=True)
    assert (tmp_path / "precious" / "thesis.tex").read_text() == "x"


def test_a_mistake_in_the_data_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train\.txt: no such file"):
        run(tmp_path / "run", data={"missing": True})
    assert list(tmp_path.iterdir()) == []
    run(tmp_path / "run", training={"epochs": 0.1})
    with pytest.raises(UserError, match=r"train\.txt: no such file"):
        run(tmp_path / "run", data={"missing": True}, overwrite=True)
    assert weights(tmp_path / "run"), "the older run is still there"


def test_an_empty_folder_is_as_good_as_none(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    run(tmp_path / "run", training={"epochs": 0.1})


def test_what_a_killed_process_left_beside_the_run_is_swept_away(tmp_path: Path) -> None:
    left = tmp_path / ".run.4194305.abc.part"  # no process has a number this high
    alive = tmp_path / f".run.{os.getpid()}.abc.part"
    other = tmp_path / ".other.4194305.abc.part"
    for path in (left, alive, other):
        path.mkdir()
    run(tmp_path / "run", training={"epochs": 0.1})
    assert not left.exists()
    assert alive.exists()
    assert other.exists()
