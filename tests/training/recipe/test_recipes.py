"""Recipes: differences from a base, settings of the command line, and mistakes told in one line."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

import latentalign
from latentalign.errors import UserError
from latentalign.training.recipe.overrides import apply_settings
from latentalign.training.recipe.recipes import (
    build_recipe,
    find_recipe,
    load_recipe,
    read_recipe,
    recipe_folders,
    recipe_names,
)
from latentalign.training.recipe.yaml_values import parse_yaml
from tests.training import copying  # noqa: F401  registers the task


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_recipe_is_a_list_of_differences_from_its_base(tmp_path: Path) -> None:
    write(
        tmp_path,
        "base.yaml",
        "task: copy\nmodel: {size: 7, dropout: 0.5}\nobjective: {name: variational, estimator: enumerate}\n",
    )
    child = write(
        tmp_path, "child.yaml", "base: base.yaml\nmodel: {size: 9}\nobjective: {name: marginal, prune: 0.1}\n"
    )
    recipe = load_recipe(child)
    assert recipe.model.size == 9  # type: ignore[attr-defined]
    assert recipe.model.dropout == 0.5  # type: ignore[attr-defined]
    assert recipe.objective == {"name": "marginal", "prune": 0.1}  # a choice of its own: no estimator is left


def test_a_base_may_have_a_base_but_not_itself(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", "task: copy\nseed: 3\n")
    write(tmp_path, "b.yaml", "base: a\nseed: 4\n")
    assert read_recipe(write(tmp_path, "c.yaml", "base: b.yaml\n")) == {"task": "copy", "seed": 4}
    circle = write(tmp_path, "d.yaml", "base: d.yaml\n")
    with pytest.raises(UserError, match="circle"):
        read_recipe(circle)


def test_settings_reach_any_depth_and_keep_types() -> None:
    values = {"task": "copy", "schedule": [{"objective": "soft", "epochs": 1}], "training": {"epochs": 3}}
    result = apply_settings(
        values,
        [
            "training.learning_rate=1e-3",
            "schedule.0.epochs=0.5",
            "model.size=4",
            "training.deterministic=true",
        ],
    )
    assert result["training"] == {"epochs": 3, "learning_rate": 0.001, "deterministic": True}
    assert result["schedule"][0]["epochs"] == 0.5
    assert result["model"] == {"size": 4}
    assert values["training"] == {"epochs": 3}  # the caller's values stay as they are


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"trainin": {}}, "trainin: unknown key; did you mean 'training'"),
        ({"training": {"epoch": 3}}, "training.epoch: unknown key; did you mean 'epochs'"),
        ({"training": {"halving": {"patients": 1}}}, "training.halving.patients: .* did you mean 'patience'"),
        ({"schedule": [{"objectiv": "soft"}]}, "schedule.0.objectiv: unknown key; did you mean 'objective'"),
        ({"model": {"dropouts": 0.1}}, "model.dropouts: unknown key; did you mean 'dropout'"),
        ({"data": {"zzz": 1}}, "data.zzz: unknown key; known here: batch, "),
        ({"training": {"epochs": "three"}}, 'training.epochs: expected a valid number, received "three"'),
        ({"training": {"epochs": -1}}, "training.epochs: expected greater than 0, received -1"),
        ({"training": {"deterministic": 1}}, "training.deterministic: expected a valid boolean, received 1"),
        ({"model": {"size": 2.5}}, "model.size: expected a valid integer.*received 2.5"),
        ({"model": {"size": "12"}}, 'model.size: expected a valid integer, received "12"'),
        ({"training": {"precision": 16}}, "training.precision: expected 32 or 'bf16', received 16"),
        ({"task": "translatoin"}, "task: .* did you mean 'translation'"),
    ],
)
def test_mistakes_are_told_in_one_line(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        build_recipe({"task": "copy", **values})
    assert "\n" not in str(caught.value)


def test_several_mistakes_are_counted() -> None:
    with pytest.raises(UserError, match=r"\(and 1 more\)"):
        build_recipe({"task": "copy", "training": {"epochs": "x", "eps": "y"}})


def test_a_missing_task_is_named() -> None:
    with pytest.raises(UserError, match="task: missing"):
        build_recipe({})


@pytest.mark.parametrize("setting", ["training.epochs", "=3", "seed.a=1", "schedule.7.epochs=1"])
def test_bad_settings(setting: str) -> None:
    with pytest.raises(UserError, match="--set"):
        apply_settings({"seed": 1, "schedule": [{"objective": "soft"}]}, [setting])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "expected YAML"),
        ("a: 1\na: 2\n", "given twice"),
        ("- 1\n", "expected a mapping"),
        ("!!python/object/apply:os.system ['true']\n", "expected YAML"),
    ],
)
def test_broken_yaml(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_recipe(write(tmp_path, "bad.yaml", text))


def test_numbers_mean_what_they_look_like() -> None:
    assert parse_yaml("[1e-3, 2E5, 1.5e+2, 3, '1e-3', 1e]", "here") == [
        0.001,
        200000.0,
        150.0,
        3,
        "1e-3",
        "1e",
    ]


def test_a_missing_recipe_names_the_nearest() -> None:
    with pytest.raises(UserError, match="no such recipe") as caught:
        find_recipe("no-such-recipe-anywhere")
    assert "\n" not in str(caught.value)
    assert recipe_names(), "the checkout's recipes are found"
    name = recipe_names()[0]
    assert find_recipe(name).stem == Path(name).name
    with pytest.raises(UserError, match=f"did you mean '{name}'"):
        find_recipe(name + "x")


def test_a_missing_file_names_the_nearest_one_beside_it(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("task: copy\n")
    with pytest.raises(UserError, match=rf"did you mean '{tmp_path}/mine\.yaml'"):
        find_recipe(tmp_path / "mine.yml")


def test_every_packaged_recipe_is_valid() -> None:
    names = recipe_names()
    assert len(names) > 50
    for name in names:
        load_recipe(name)


def test_an_installed_package_has_its_recipes_inside() -> None:
    checkout = Path(__file__).parents[3]
    project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))
    put = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    inside, beside = recipe_folders()
    assert put == {"recipes": inside.relative_to(Path(latentalign.__file__).parents[1]).as_posix()}
    assert beside == checkout / "recipes"


def test_a_resolved_recipe_resolves_to_itself() -> None:
    recipe = build_recipe(
        {"task": "copy", "schedule": [{"objective": "soft", "epochs": 1.5}, {"objective": "marginal"}]}
    )
    assert build_recipe(recipe.resolved()).resolved() == recipe.resolved()
