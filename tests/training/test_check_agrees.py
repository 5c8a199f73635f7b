"""`check` refuses exactly what `train` refuses, over every key of the recipes of three tasks and many values of it."""

import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from latentalign.gaussian.task import GaussianDataConfig, GaussianModelConfig
from latentalign.memory.config import MemoryDataConfig, MemoryModelConfig
from latentalign.training.recipe.sections import RecipeConfig
from latentalign.translation.config import DataConfig, ModelConfig
from tests.cli.command import latentalign
from tests.cli.strange import keys_of, small_recipe
from tests.inspector.untrained import WORLDS

VALUES = [
    "-1", "0", "1", "2", "3", "0.5", "0.999", "1.0e-3", "50", "1000000000", "1.0e15", "true", "null", "''", "text",
    "[]",
    "[1, 2]", "[0.1, 0.2]", "{}", "{name: soft}", "soft", "marginal", "hard", "variational", "rws", "wake", "vimco",
    "exact", "kmax:2", "sample:2", "dirichlet", "sparsemax", "bf16", "gpu", "cpu", "whitespace", "[{objective: soft}]",
    "[{objective: soft, epochs: 0.1}, {objective: wake, train: phi}]", "[{objective: soft, train: phi}]",
]  # fmt: skip
# several processes are started by files of their own; where training ends is set by the test
LEFT_OUT = {"training.devices", "training.nodes", "training.epochs", "training"}
SECTIONS = {
    "translation": (DataConfig, ModelConfig),
    "memory": (MemoryDataConfig, MemoryModelConfig),
    "gaussian": (GaussianDataConfig, GaussianModelConfig),
}


@pytest.fixture(scope="module")
def recipes(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("agreement")
    sections = {
        "memory": {
            "data": {"worlds": WORLDS, "memory": 10},
            "model": {"size": 8, "hops": 2, "inference_size": 4},
        },
        "gaussian": {
            "data": {"batch_size": 500},
            "model": {"latent": 2, "hidden": 4, "importance_samples": 2},
            "objective": {"name": "variational", "estimator": "pathwise"},
        },
    }
    found = {"translation": small_recipe(folder / "translation")}
    for task, values in sections.items():
        found[task] = folder / f"{task}.yaml"
        found[task].write_text(yaml.safe_dump({"task": task, **values, "training": {"threads": 1}}))
    return found


def keys(task: str) -> Iterator[str]:
    data, model = SECTIONS[task]
    found = [key for key in keys_of(RecipeConfig) if key not in ("data", "model")]
    found += [*keys_of(data, "data."), *keys_of(model, "model.")]
    return (key for key in found if key not in LEFT_OUT)


def mutations(task: str, share: range) -> list[str]:
    """A share of all keys and values, the same ones in every run."""
    cases = [f"{key}={value}" for key in keys(task) for value in VALUES]
    return [case for case in cases if zlib.crc32(case.encode()) % 40 in share]


@pytest.mark.parametrize(
    "share",
    [pytest.param(range(1), id="some"), pytest.param(range(1, 40), id="others", marks=[pytest.mark.slow])],
)
@pytest.mark.parametrize("task", SECTIONS)
def test_check_refuses_exactly_what_train_refuses(recipes, tmp_path, task, share):
    wrong, cases = [], mutations(task, share)
    for number, change in enumerate(cases):
        asked = (recipes[task], "--set", change, "--set", "training.epochs=0.01")
        out = tmp_path / str(number)
        checked, trained = latentalign("check", *asked), latentalign("train", *asked, "--out", out)
        said = [found.stderr.rstrip("\n").split("\n")[-1] for found in (checked, trained)]
        if (checked.code == 2) != (trained.code == 2) or (checked.code == 2 and said[0] != said[1]):
            wrong.append(
                f"{change}: check {checked.code} {said[0][:200]!r}, train {trained.code} {said[1][:200]!r}"
            )
        if trained.code == 2 and list(tmp_path.iterdir()):
            wrong.append(f"{change}: train refused it and left {list(tmp_path.iterdir())}")
        for left in tmp_path.iterdir():
            shutil.rmtree(left)
    assert len(cases) > 20
    assert not wrong, f"{len(wrong)} of {len(cases)}:\n" + "\n".join(wrong)


@pytest.mark.parametrize("kind", ["links", "facts"])
def test_a_given_posterior_has_no_network_to_train(tmp_path, recipes, kind):
    """Links of an aligner or facts of the file stand for the posterior: a phase of phi alone has nothing to do."""
    phase = "schedule=[{objective: soft, epochs: 0.1}, {objective: wake, train: phi}]"
    changes = ["model.posterior=facts"]
    task = "memory"
    if kind == "links":
        task, folder = "translation", recipes["translation"].parent
        (folder / "links").write_text("0-0\n" * len((folder / "text.de").read_text().splitlines()))
        files = "{source: text.de, target: text.en, links: links}"
        changes = [f"data.train={files}", f"data.valid={files}", "model.external_posterior={}"]
    words = [word for change in (*changes, phase, "training.epochs=0.5") for word in ("--set", change)]
    for command in (("check",), ("train", "--out", tmp_path / "run")):
        found = latentalign(command[0], recipes[task], *words, *command[1:])
        assert found.code == 2, found.stderr
        assert "schedule.1.train: 'phi' trains an inference network, but this model has none" in found.stderr
    assert not (tmp_path / "run").exists()
