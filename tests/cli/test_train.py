"""`train`, `check` and `evaluate` through the command line: results on stdout, one line and code 2 for a mistake."""

import contextlib
import io
import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from latentalign.cli import app
from latentalign.errors import UserError
from tests.training.helpers import BASE, ROOT, call, command, environment, last_state, merge, same_training


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "toy.yaml"
    path.write_text(yaml.safe_dump(merge(BASE, {"training": {"epochs": 0.5}})))
    return path


def invoke(*arguments: str | Path) -> str:
    """Run a command in this process and give its stdout; errors come out as they are."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        work = app(list(map(str, arguments)), standalone_mode=False)
        work()
    return out.getvalue()


def test_train_evaluate_and_resume(tmp_path: Path, recipe: Path) -> None:
    summary = json.loads(invoke("train", recipe, "--out", tmp_path / "run", "--json"))
    assert summary["run"] == str(tmp_path / "run")
    assert summary["steps"] == 4
    results = json.loads(invoke("evaluate", tmp_path / "run", "--inference", "kmax:2", "--json"))
    assert {"task", "examples", "tokens", "nll", "ppl", "prior_entropy", "inference", "seconds"} <= set(
        results
    )
    assert results["inference"] == "kmax:2"
    assert "prior_entropy" in invoke("evaluate", tmp_path / "run")
    longer = json.loads(invoke("train", "--resume", tmp_path / "run", "--set", "training.epochs=1", "--json"))
    assert longer["steps"] == 8
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["training"]["epochs"] == 1


def test_the_default_folder_has_the_name_of_the_recipe(
    tmp_path: Path, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    invoke("train", recipe)
    assert (tmp_path / "runs" / "toy" / "model.safetensors").is_file()


def test_check_tries_every_phase_and_writes_nothing(tmp_path: Path, recipe: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    text = invoke(
        "check", recipe, "--set", "schedule=[{objective: soft, epochs: 1}, {objective: variational}]"
    )
    assert "phase 1: soft" in text
    assert "phase 2: variational" in text
    assert "64 examples in 8 steps an epoch" in text
    assert "phi 372" in text
    assert sorted(tmp_path.rglob("*")) == before


def test_check_finds_an_objective_that_does_not_fit(recipe: Path) -> None:
    with pytest.raises(UserError, match=r"phase 1 \(marginal\).*categorical"):
        invoke("check", recipe, "--set", "model.prior=dirichlet")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "expected a recipe or --resume"),
        (["check"], "expected a recipe"),
        (["train", "nowhere.yaml"], "no such recipe"),
        (["train", "{recipe}", "--set", "training.epoch=3"], "did you mean 'epochs'"),
        (["train", "{recipe}", "--set", "objective=marginl"], "did you mean 'marginal'"),
        (["train", "{recipe}", "--set", "training.inference=kmax:0"], "k: expected"),
        (["train", "--resume", "{folder}/none"], "no such run folder"),
        (["train", "--resume", "{folder}"], "not a run folder"),
        (["train", "{recipe}", "--resume", "{folder}/a", "--out", "{folder}/b"], "drop --out"),
        (["train", "{recipe}", "--resume", "{folder}/a", "--overwrite"], "choose one"),
        (["evaluate", "{folder}/none"], "no such run folder"),
        (["evaluate", "{folder}"], "not a run folder"),
    ],
)
def test_mistakes(
    tmp_path: Path, recipe: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    filled = [argument.format(recipe=recipe, folder=tmp_path) for argument in arguments]
    with pytest.raises(UserError, match=message) as caught:
        invoke(*filled)
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before, "nothing is written"


def test_resuming_may_change_training_only(tmp_path: Path, recipe: Path) -> None:
    invoke("train", recipe, "--out", tmp_path / "run")
    with pytest.raises(UserError, match=r"model\.size was 12 and would be 13; only training may change"):
        invoke("train", "--resume", tmp_path / "run", "--set", "model.size=13")
    with pytest.raises(UserError, match=r"seed was 1 and would be 2"):
        invoke("train", recipe, "--resume", tmp_path / "run", "--set", "seed=2")
    invoke("train", recipe, "--resume", tmp_path / "run", "--set", "training.epochs=0.75")
    assert last_state(tmp_path / "run")["place"]["step"] == 6


def test_a_recipe_may_be_resumed_before_it_began(tmp_path: Path, recipe: Path) -> None:
    invoke("train", recipe, "--resume", tmp_path / "run")
    assert last_state(tmp_path / "run")["place"]["step"] == 4


def test_exit_code_and_stderr_of_a_mistake(recipe: Path, tmp_path: Path) -> None:
    done = call("train", recipe, "--out", tmp_path / "run", "--set", "data.missing=true")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "latentalign: train.txt: no such file\n"


def test_sigterm_exits_with_its_own_code_and_resumes(tmp_path: Path, recipe: Path) -> None:
    settings = ["--set", "data.slow=0.02", "--set", "training.epochs=3"]
    process = subprocess.Popen(
        command("train", recipe, "--out", tmp_path / "run", *settings),
        cwd=ROOT,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    log = tmp_path / "run" / "log.txt"
    deadline = time.monotonic() + 240
    while not (log.exists() and "phase 1" in log.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 75
    last = errors.splitlines()[-1]
    assert last.startswith("latentalign: interrupted by SIGTERM after step")
    assert last.endswith(f"go on with: latentalign train --resume {tmp_path / 'run'}")
    invoke("train", "--resume", tmp_path / "run")
    invoke("train", recipe, "--out", tmp_path / "whole", *settings)
    assert same_training(tmp_path / "run", tmp_path / "whole")
