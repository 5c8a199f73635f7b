"""`check` and `train` agree: what one refuses the other refuses, with the same words, and nothing is written."""

import subprocess
import sys

import pytest
import torch

from latentalign.errors import UserError
from latentalign.training.check import check_recipe
from latentalign.training.loop import lightning_trainer
from tests.cli.command import assert_mistake, latentalign
from tests.training.helpers import ROOT, environment, recipe, run

REFUSED = {
    "betas": ({"training": {"betas": [1.5, 0.9]}}, r"training\.betas\.0"),
    "negative betas": ({"training": {"betas": [0.9, -0.1]}}, r"training\.betas\.1"),
    "three betas": ({"training": {"betas": [0.9, 0.9, 0.9]}}, r"training\.betas"),
    "no GPU": ({"training": {"accelerator": "gpu"}}, "no GPU was found"),
    "infinite epochs": ({"training": {"epochs": float("inf")}}, "finite"),
    "NaN": ({"training": {"learning_rate": float("nan")}}, "finite"),
    "huge epochs": ({"training": {"epochs": 1e300}}, r"2\^53"),
    "huge seed": ({"seed": 10**30}, r"2\^53"),
    "threads": ({"training": {"threads": 100_000}}, r"training\.threads: expected at most"),
    "devices": ({"training": {"devices": 100_000}}, r"training\.devices: expected at most"),
    "nodes": ({"training": {"nodes": 2}}, r"training\.nodes: 2 machines have to be started together"),
    "timeout": ({"training": {"timeout_minutes": 1e12}}, r"training\.timeout_minutes"),
    "inference": ({"training": {"inference": "kmix:3"}}, "kmax"),
    "exact for a Dirichlet": (
        {"model": {"prior": "dirichlet"}, "objective": "soft", "training": {"inference": "exact"}},
        r"training\.inference",
    ),
    "k-max for a Dirichlet": (
        {"model": {"prior": "dirichlet"}, "objective": "soft", "training": {"inference": "kmax:2"}},
        r"training\.inference",
    ),
    "a marginal of a Dirichlet": ({"model": {"prior": "dirichlet"}, "objective": "marginal"}, "phase 1"),
    "samples without end": (
        {"objective": {"name": "rws", "samples": 10**9}},
        r"objective\.samples: .* 10000",
    ),
    "counts without end": ({"training": {"inference": "sample:99999999999"}}, "up to 10000"),
    "a model that fits nowhere": ({"model": {"size": 10**9}}, r"parameters take [\d,]+ GB"),
    "a model beyond all numbers": ({"model": {"size": 2**52}}, "."),
    "label smoothing of a pruned objective": (
        {"objective": {"name": "marginal", "prune": 0.01, "label_smoothing": 0.1}},
        "objective: objective marginal: takes no label_smoothing",
    ),
    "a decay without its warm-up": ({"training": {"decay": "inverse_sqrt"}}, "warmup_steps above 0"),
    "missing data": ({"data": {"missing": True}}, "."),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_one_refuses_the_other_refuses(tmp_path, name):
    sections, told = REFUSED[name]
    words = []
    for use in (lambda: check_recipe(recipe(**sections)), lambda: run(tmp_path / "run", **sections)):
        with pytest.raises((UserError, RuntimeError), match=told) as caught:
            use()
        words.append(str(caught.value))
    assert words[0] == words[1]
    assert "\n" not in words[0] or isinstance(caught.value, RuntimeError)
    assert list(tmp_path.iterdir()) == []


def test_a_resumed_run_is_tried_first_too(tmp_path):
    sections = {"model": {"prior": "dirichlet"}, "objective": "soft"}
    run(tmp_path / "run", training={"epochs": 0.25}, **sections)
    with pytest.raises(UserError, match=r"training\.inference"):
        run(tmp_path / "run", resume=True, training={"epochs": 1.0, "inference": "exact"}, **sections)
    run(tmp_path / "run", resume=True, training={"epochs": 0.5}, **sections)


def test_trying_changes_no_training(tmp_path, monkeypatch):
    """Bit for bit what training gives without the trial."""
    import latentalign.training.train as training
    from tests.training.helpers import same_training

    settings = {
        "objective": {"name": "variational", "estimator": {"name": "reinforce", "baseline": "running-mean"}}
    }
    run(tmp_path / "tried", **settings)
    monkeypatch.setattr(training, "try_out", lambda *arguments: [])
    run(tmp_path / "untried", **settings)
    assert same_training(tmp_path / "tried", tmp_path / "untried")


@pytest.mark.parametrize("has_it", [True, False])
def test_bf16_works_with_and_without_a_processor_for_it(tmp_path, monkeypatch, has_it, capsys):
    if has_it and not lightning_trainer._has_bf16_lstm():
        pytest.skip("this processor computes no LSTM in bf16")
    monkeypatch.setattr(lightning_trainer, "_has_bf16_lstm", lambda: has_it)
    said = []
    config = recipe(training={"precision": "bf16"}).training
    before = torch.backends.mkldnn.enabled
    with lightning_trainer.supported(config, said.append), torch.autocast("cpu", dtype=torch.bfloat16):
        output, _ = torch.nn.LSTM(4, 4)(torch.randn(3, 2, 4, requires_grad=True))
        output.float().sum().backward()
    assert torch.backends.mkldnn.enabled == before
    assert [("no bf16 LSTM" in line) for line in said] == ([] if has_it else [True])


def test_two_machines_that_never_meet_are_told_what_they_wait_for(tmp_path):
    """With the variables of a launcher, but without the second machine: said at once, ended by the time limit."""
    path = tmp_path / "recipe.yaml"
    path.write_text("task: copy\ntraining: {nodes: 2, epochs: 1, timeout_minutes: 0.05}\n")
    found = subprocess.run(
        [sys.executable, "-m", "tests.training.copying", "train", str(path), "--out", str(tmp_path / "run")],
        cwd=ROOT,
        env=environment(NODE_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="29713"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert found.returncode in (2, 69), found.stderr
    assert "waiting up to 0.05 minutes for 2 processes on 2 machines" in found.stderr
    assert "Traceback" not in found.stderr


# --- mistyped names ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("train", "multi30k-de-en-sof"), "did you mean 'multi30k-de-en-soft'"),
        (("check", "demo", "--set", "training.epoch=3"), "did you mean 'epochs'"),
        (("check", "demo", "--set", "trainin.epochs=3"), "did you mean 'training'"),
        (("train", "demo", "--set", "data.max_lenght=3"), "did you mean 'max_length'"),
        (("train", "demo", "--set", "model.decoder_sise=3"), "did you mean 'decoder_size'"),
        (("train", "vqa-scenes", "--set", "model.word_dmi=3"), "did you mean 'word_dim'"),
        (("check", "memory-hard", "--set", "model.hop=3"), "did you mean 'hops'"),
        (("check", "demo", "--set", "task=translatoin"), "did you mean 'translation'"),
    ],
)
def test_mistyped_names_are_told_before_torch_is_imported(arguments, told):
    script = (
        "import sys; from latentalign.cli import main\ntry: main()\nfinally: print('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", script, *arguments]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert told in found.stderr
    assert found.stderr.count("\n") == 1
    assert found.stdout == "False\n", "torch takes seconds"


def test_check_through_the_command_line(tmp_path):
    for setting, told in {"training.betas=[2,0.9]": "betas", "training.accelerator=gpu": "no GPU"}.items():
        assert_mistake(latentalign("check", "gaussian-digits", "--set", setting), told)
        out = tmp_path / "run"
        assert_mistake(latentalign("train", "gaussian-digits", "--set", setting, "--out", out), told)
        assert not out.exists()
