"""What the trainer promises holds for the real tasks, too: resuming, several processes, line numbers of bad batches."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from latentalign.training.loop.module import AlignmentModule
from latentalign.training.recipe.recipes import Recipe, build_recipe
from latentalign.training.recipe.tasks import TASKS, find_task
from latentalign.training.run.stopping import NonFinite
from latentalign.training.train import train
from latentalign.translation.data.shards import read_shard
from latentalign.translation.generated.corpus import write_corpus
from latentalign.translation.network.model import TranslationModel
from tests.training.helpers import ROOT, environment, same_training
from tests.training.run.test_processes import losses, torchrun

SAMPLED = {"name": "variational", "estimator": {"name": "reinforce", "samples": 1}}
TRANSFORMER = {"name": "transformer", "layers": 1, "heads": 2, "width": 8, "feed_forward": 8}
SECTIONS: dict[str, dict[str, Any]] = {
    "translation": {
        "model": {"embedding_size": 8, "memory_size": 8, "decoder_size": 8, "attention_size": 8},
        "objective": SAMPLED,
    },
    "transformer": {
        "task": "translation",
        "model": {
            "embedding_size": 8,
            "encoder": TRANSFORMER,
            "decoder": {**TRANSFORMER, "cross_layers": 1},
            "inference_network": {"encoder": TRANSFORMER},
            "shared_embeddings": True,
            "attention_size": 8,
        },
        "objective": SAMPLED,
    },
    "memory": {
        "data": {"worlds": {"stories": 12, "facts": [4, 6], "kinds": ["one-fact"]}, "batch_size": 4},
        "model": {"size": 8, "hops": 2, "inference_size": 8},
        "objective": "variational",
    },
    "vqa": {
        "data": {
            "scenes": {"train_images": 6, "valid_images": 2, "questions_per_image": 4},
            "min_answer_count": 1,
            "batch_size": 8,
        },
        "model": {"word_dim": 6, "question_dim": 8, "region_dim": 8, "attention_dim": 8},
        "objective": SAMPLED,
    },
    "gaussian": {
        "data": {"batch_size": 400},
        "model": {"latent": 2, "hidden": 8},
        "objective": {"name": "variational", "estimator": "pathwise"},
    },
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The data section of a small translation recipe."""
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder, sizes={"train": 40, "valid": 8})
    return {
        "folder": str(folder),
        "train": {"source": "train.de", "target": "train.en"},
        "valid": {"source": "valid.de", "target": "valid.en"},
        "tokenizer": {"kind": "whitespace"},
        "batch_size": 8,
    }


def values_of(task: str, folder: Path, corpus: dict[str, Any], **training: Any) -> dict[str, Any]:
    found = {"task": task, **SECTIONS[task]}
    if found["task"] == "translation":
        found["data"] = corpus
    elif task == "vqa":
        found["data"] = {**found["data"], "folder": str(folder / "scenes")}
    settings = {
        "epochs": 2.0,
        "log_every": 1,
        "checkpoint": {"every_steps": 2, "every_minutes": None},
        **training,
    }
    return {**found, "training": settings}


def run(recipe: Recipe, folder: Path, *, resume: bool = False) -> int:
    return train(recipe, folder, resume=resume, echo=False).steps


class Crash(Exception):
    """Something nobody foresaw."""


def test_no_task_is_left_out() -> None:
    assert set(SECTIONS) | {"copy"} >= set(TASKS)


@pytest.mark.parametrize("task", SECTIONS)
def test_every_task_resumes_bit_for_bit(
    task: str, corpus: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = build_recipe(values_of(task, tmp_path, corpus))
    steps = run(recipe, tmp_path / "whole")
    assert steps >= 4
    original = AlignmentModule.training_step

    def failing(self: AlignmentModule, step: Any, batch_idx: int) -> None:
        if self.step == steps // 2 + 1:
            raise Crash
        original(self, step, batch_idx)

    with monkeypatch.context() as patch:
        patch.setattr(AlignmentModule, "training_step", failing)
        with pytest.raises(Crash):
            run(recipe, tmp_path / "run")
    run(recipe, tmp_path / "run", resume=True)
    assert same_training(tmp_path / "run", tmp_path / "whole")


def test_a_bad_batch_is_told_by_the_lines_of_its_sentences(
    corpus: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = TranslationModel.problem

    def poisoned(self: TranslationModel, batch: Any, *, with_posterior: bool = False) -> Any:
        if self.training:
            with torch.no_grad():
                self.source_embedding.weight.fill_(float("nan"))
        return original(self, batch, with_posterior=with_posterior)

    monkeypatch.setattr(TranslationModel, "problem", poisoned)
    with pytest.raises(NonFinite, match=r"step 1: .*weight source_embedding.*NaN") as caught:
        run(build_recipe(values_of("translation", tmp_path, corpus)), tmp_path / "run")
    lines = ", ".join(str(index + 1) for index in sorted(caught.value.examples[0]))
    assert f"lines {lines} of train.de and train.en" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("network", ["translation", "transformer"])
def test_two_processes_share_prepared_shards(network: str, corpus: dict[str, Any], tmp_path: Path) -> None:
    values = values_of(network, tmp_path, corpus, epochs=4.0)
    # neither dropout nor samples: then only rounding differs
    values["model"] = {**values["model"], "dropout": 0.0}
    values["objective"] = "marginal"
    recipe = build_recipe(values)
    run(recipe, tmp_path / "one")
    find_task("translation").prepare_files(
        recipe.data, recipe.model, to=tmp_path / "shards", seed=1, log=lambda _: None
    )
    values["data"] = {**corpus, "folder": "moved-away", "prepared": str(tmp_path / "shards")}
    mapped = read_shard(tmp_path / "shards", "train")
    assert isinstance(mapped.source.tokens, np.memmap), "pages of one file, shared by whoever maps it"
    assert isinstance(mapped.target.tokens, np.memmap)
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(values))
    command = ["-m", "latentalign", "train", str(tmp_path / "recipe.yaml"), "--out", str(tmp_path / "two")]
    done = subprocess.run(
        [sys.executable, *torchrun(), *command],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    one, two = (torch.tensor(losses(tmp_path / name)) for name in ("one", "two"))
    assert len(one) == 20
    torch.testing.assert_close(two, one, atol=1e-4, rtol=0)
