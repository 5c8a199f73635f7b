"""Run folders of the tasks that answer questions, as training writes them, with weights nobody trained."""

from pathlib import Path

import torch

from latentalign.training.recipe.recipes import build_recipe
from latentalign.training.recipe.schedule import schedule_of
from latentalign.training.run.config_file import save_config
from latentalign.training.run.weights import save_model

WORLDS = {"stories": 12, "facts": [4, 6], "kinds": ["one-fact"]}
SCENES = {"train_images": 3, "valid_images": 2, "questions_per_image": 2}
SMALL_VQA = {
    "word_dim": 6, "question_dim": 8, "region_dim": 8, "attention_dim": 8, "answer_hidden_dim": 8,
    "posterior_answer_dim": 6, "posterior_hidden_dim": 8,
}  # fmt: skip


def untrained_memory_run(folder: Path, *, objective: str = "variational", **model: str) -> Path:
    data = {"worlds": WORLDS, "memory": 10}
    sizes = {"size": 8, "hops": 2, "inference_size": 8}
    return _write(
        folder, {"task": "memory", "data": data, "model": {**sizes, **model}, "objective": objective}
    )


def untrained_vqa_run(folder: Path, *, scenes: Path) -> Path:
    data = {"folder": str(scenes), "scenes": SCENES, "min_answer_count": 1}
    return _write(folder, {"task": "vqa", "data": data, "model": SMALL_VQA, "objective": "variational"})


def _write(folder: Path, values: dict) -> Path:
    folder.mkdir(parents=True)
    recipe = build_recipe(values)
    prepared = recipe.task.prepare(recipe.data, recipe.model, folder=folder, seed=1, log=lambda line: None)
    torch.manual_seed(3)
    model = recipe.task.build_model(
        recipe.model, prepared.assets, needs_posterior=schedule_of(recipe).needs_posterior
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)  # distributions far from uniform
    save_config(recipe, folder)
    save_model(model, folder)
    return folder
