"""The translation recipes: each is valid, says how to use it, and keeps the paper's settings where it claims them."""

from pathlib import Path

import pytest

from latentalign.alignment.registry import build_objective
from latentalign.training.recipe.recipes import load_recipe, recipe_folders
from latentalign.training.recipe.schedule import build_schedule, schedule_of

FOLDER = next(folder for folder in recipe_folders() if folder.is_dir())
NAMES = sorted(
    path.stem
    for kind in ("demo", "multi30k-de-en", "iwslt14-de-en", "wmt17-en-de")
    for path in FOLDER.glob(f"{kind}*.yaml")
)


def test_all_of_them_are_there() -> None:
    assert {"demo", "demo-variational", "multi30k-de-en", "iwslt14-de-en", "wmt17-en-de"} <= set(NAMES)
    for objective in (
        "soft",
        "marginal",
        "variational",
        "variational-sample",
        "hard",
        "relaxed",
        "gaussian-context",
    ):
        assert f"multi30k-de-en-{objective}" in NAMES
    for kind in ("", "-marginal", "-variational", "-chain"):
        assert f"multi30k-de-en-transformer{kind}" in NAMES


def test_transformers_have_the_sizes_that_people_use() -> None:
    sizes = {"iwslt14-de-en-transformer": (6, 4, 512, 1024), "wmt17-en-de-transformer": (6, 8, 512, 2048)}
    for name, expected in sizes.items():
        model = load_recipe(name).model
        for part in (model.encoder, model.decoder):
            assert (part.layers, part.heads, part.width, part.feed_forward) == expected
        assert model.decoder.cross_layers == 0
        assert model.hidden_size == model.embedding_size, "so that embeddings can be shared"


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_valid_and_says_what_it_is(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.task.name == "translation"
    schedule = build_schedule(recipe.objective, recipe.schedule, recipe.training.epochs)
    assert schedule.reached == list(schedule.phases)  # no phase is beyond the end
    assert (FOLDER / f"{name}.yaml").read_text(encoding="utf-8").startswith("# ")


def test_iwslt_has_the_settings_of_the_released_code() -> None:
    recipe = load_recipe("iwslt14-de-en")
    data, model, training = recipe.data, recipe.model, recipe.training
    assert (model.encoder_layers, model.decoder_layers) == (2, 2)
    assert (model.embedding_size, model.memory_size, model.decoder_size, model.attention_size) == (
        512,
        1024,
        768,
        512,
    )
    assert (model.inference_network.memory_size, model.dropout, model.uniform_init) == (1024, 0.3, 0.1)
    assert model.input_feeding
    assert (training.learning_rate, training.eps, training.gradient_clip, training.epochs) == (
        3e-4,
        1e-8,
        5.0,
        30,
    )
    assert (training.halving.factor, data.batch_by, data.batch_size, data.max_length) == (
        0.5,
        "sentences",
        6,
        125,
    )
    assert (data.tokenizer.kind, data.tokenizer.joint, data.tokenizer.size) == ("bpe", True, 14000)
    assert build_objective(recipe.objective).needs_posterior


@pytest.mark.parametrize("start", ["multi30k-de-en", "multi30k-de-en-transformer"])
def test_multi30k_recipes_differ_in_their_objective_alone(start: str) -> None:
    base = load_recipe(start)
    family = [name for name in NAMES if name.startswith(start)]
    assert len(family) > 3
    for name in family:
        if ("transformer" in name) == ("transformer" in start) and not name.endswith(
            ("relaxed", "chain", "gaussian-context", "input-feeding")
        ):
            recipe = load_recipe(name)
            translator = recipe.model.model_copy(update={"inference_network": base.model.inference_network})
            assert (recipe.data, translator, recipe.training) == (base.data, base.model, base.training), name
            # q begins at the prior wherever there is one
            assert recipe.model.inference_network.from_prior == schedule_of(recipe).needs_posterior, name


def test_recipes_are_short_lists_of_differences() -> None:
    bases = ("-transformer",)  # sizes and rates of their own
    for name in NAMES:
        if name.endswith(bases):
            continue
        text = Path(FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        assert len(lines) <= 12 or not text.count("\nbase:"), name
