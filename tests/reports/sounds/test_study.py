"""The grid over languages: what comes first, what is done once, and a page of what is there."""

import json
import shutil

import pytest
import yaml

from latentalign.reports.sounds.grid import SoundGrid, SoundSettings
from latentalign.reports.sounds.page import _languages
from latentalign.reports.sounds.rows import (
    ENSEMBLES,
    MULTILINGUAL,
    PRINCIPAL,
    ROWS,
    TOGETHER,
    SoundCell,
    parse_languages,
    plan_cells,
)
from latentalign.training.recipe.recipes import load_recipe
from latentalign.training.run.config_file import load_config
from tests.cli.command import assert_mistake, latentalign

ENSEMBLE = "ensemble"
WORDS = [("aab", "aː p"), ("ba", "b a"), ("né", "n eː"), ("bab", "b a p"), ("nab", "n a p"), ("ab", "a p")]
SMALL = (
    "model.memory_size=8", "model.decoder_size=8", "model.hidden_size=8", "model.embedding_size=8",
    "model.inference_network.memory_size=8", "training.epochs=1", "training.warmup_steps=1", "data.batch_size=6",
)  # fmt: skip


@pytest.fixture
def data(tmp_path):
    for name in ("medium/dut_train", "medium/dut_dev", "fre_train", "fre_dev", "fre_test"):
        path = tmp_path / "data" / f"{name}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{word}\t{phones}\n" for word, phones in WORDS), encoding="utf-8")
    return tmp_path / "data"


def reproduce(data, *options, languages="dut,fre"):
    settings = [part for setting in SMALL for part in ("--set", setting)]
    return latentalign(
        "reproduce", "g2p", "--data", data, "--languages", languages, "--out", data.parent / "out", "--jobs", 0,
        *settings, *options,
    )  # fmt: skip


def test_the_most_telling_cells_come_first():
    cells = plan_cells(["dut", "ady"], list(ROWS), [1, 2])
    assert [cell.row for cell in cells[:4]] == list(PRINCIPAL)
    assert {cell.language for cell in cells[: len(ROWS) - 1 + len(PRINCIPAL)]} == {"dut"}
    assert len(cells) == len(set(cells)) == 2 * (len(ROWS) + len(PRINCIPAL)) - 1
    assert SoundCell("dut", MULTILINGUAL, 1) not in cells  # a run for the languages of 800 words
    assert SoundCell("dut", "rws", 2) not in cells


def test_an_ensemble_comes_after_its_members():
    cells = plan_cells(["dut", "ady"], [*ROWS, ENSEMBLE], [4])
    for language in ("dut", "ady"):
        together = SoundCell(language, ENSEMBLE, 4)
        found = [(member.row, member.seed) for member in together.members]
        assert found[:2] == [("chain-long", 4), ("chain", 4)]
        assert found[2:] == [("chain-monotone", seed) for seed in (4, 5, 6)]
        assert all(cells.index(member) < cells.index(together) for member in together.members)


def test_groups_of_languages():
    assert len(parse_languages("all")) == 20
    assert parse_languages("dut, medium")[0] == "dut"
    assert len(parse_languages("dut,medium")) == 10


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row not in ("chain-deep", "chain-long", MULTILINGUAL)]
)
def test_rows_that_are_compared_have_a_recipe_on_the_one_base(row):
    recipe, base = load_recipe(ROWS[row]), load_recipe("g2p")
    assert recipe.training == base.training
    assert recipe.data == base.data
    assert recipe.model.dropout == base.model.dropout


def test_a_part_of_the_grid_has_its_page_and_the_rest_is_named(data):
    found = reproduce(data, "--only", "soft", "--only", "chain-monotone", languages="fre")
    assert found.code == 0, found.stderr
    out = data.parent / "out"
    content = json.loads((out / "g2p.json").read_text(encoding="utf-8"))
    soft = content["rows"][0]
    assert (soft["row"], soft["language"], soft["recipe"]) == ("soft", "fre", "g2p-soft")
    assert {
        "nll",
        "word_error",
        "phone_error",
        "prior_entropy",
        "sharpness",
        "test_word_error",
    } <= soft.keys()
    assert (out / "words-fre-1.png").is_file()
    assert len((out / "runs/fre/soft-s1/dev.phones").read_text(encoding="utf-8").splitlines()) == len(WORDS)
    before = (out / "runs/fre/soft-s1/row.json").stat().st_mtime_ns
    plan = reproduce(data, "--only", "soft", "--dry-run")
    assert plan.stdout.splitlines() == ["dut-soft-s1: to be trained", "fre-soft-s1: done"]
    finished = reproduce(data, "--only", "soft", "--finished")
    assert finished.code == 0, finished.stderr
    assert "1 of 2 runs are done" in finished.stdout
    assert_mistake(reproduce(data, "--only", "hard", "--finished"), "--finished", "none of these cells")
    found = reproduce(data, "--only", "soft")
    assert "2 cells, 1 done before" in found.stderr
    assert (out / "runs/fre/soft-s1/row.json").stat().st_mtime_ns == before
    assert "2 of 2 runs are done" in found.stdout


def test_means_are_of_languages_that_most_rows_have():
    nlls = {
        "soft": {"dut": 1.0, "fre": 3.0, "ady": 5.0},
        "marginal": {"dut": 2.0, "fre": 4.0, "bul": 9.0},
        "hard": {"fre": 7.0},  # a row that has just begun must not narrow the others down
    }
    rows = [
        {"row": row, "language": language, "seed": 1, "nll": value}
        for row, found in nlls.items()
        for language, value in found.items()
    ]
    lines = _languages(rows, "nll", "NLL", None, 1).markdown().splitlines()
    means = [line for line in lines if "mean of" in line]
    assert means == ["| mean of 2 | medium | 2.0 | 3.0 | – |", "| mean of 1 | low | 5.0 | – | – |"]


def test_an_ensemble_is_measured_when_its_members_are_there(data):
    only = ("--only", ENSEMBLE)
    found = reproduce(data, *only, languages="fre")
    assert found.code == 0, found.stderr
    rows = json.loads((data.parent / "out" / "g2p.json").read_text(encoding="utf-8"))["rows"]
    assert [(row["row"], row["seed"]) for row in rows] == [
        *((row, seed) for row, seed in zip(ENSEMBLES[ENSEMBLE], (1, 1, 1, 2, 3), strict=True)),
        (ENSEMBLE, 1),
    ]
    assert rows[-1]["nll"] < max(row["nll"] for row in rows[:-1])
    assert "test_word_error" in rows[-1]
    # its row is adopted with those of its members, and not by other recipes than theirs
    there = data.parent / "there"
    (data.parent / "out").rename(there)
    shutil.rmtree(there / "runs")
    plan = reproduce(data, *only, "--adopt", there, "--dry-run", languages="fre")
    assert "fre-ensemble-s1: done" in plan.stdout.splitlines()
    other = reproduce(
        data, *only, "--adopt", there, "--dry-run", "--set", "model.dropout=0.1", languages="fre"
    )
    assert "fre-ensemble-s1: to be trained" in other.stdout.splitlines()
    content = json.loads((there / "g2p.json").read_text(encoding="utf-8"))
    content["rows"] = [row for row in content["rows"] if row["seed"] != 3]
    (there / "g2p.json").write_text(json.dumps(content), encoding="utf-8")
    plan = reproduce(data, *only, "--adopt", there, "--dry-run", languages="fre")
    assert "fre-ensemble-s1: to be trained" in plan.stdout.splitlines()
    # its members' runs are needed then, not only their rows
    assert "fre-chain-long-s1: to be trained" in plan.stdout.splitlines()


def test_a_run_is_done_though_the_code_has_settings_now_that_it_did_not_know(data):
    assert reproduce(data, "--only", "soft", languages="fre").code == 0
    folder = data.parent / "out" / "runs" / "fre" / "soft-s1"
    config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    for split in ("train", "valid"):
        assert config["data"][split].pop("tags") is None
    (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    row = json.loads((folder / "row.json").read_text(encoding="utf-8"))
    (folder / "row.json").write_text(json.dumps({**row, "fingerprint": "0" * 16}), encoding="utf-8")
    plan = reproduce(data, "--only", "soft", "--dry-run", languages="fre")
    assert plan.stdout.splitlines() == ["fre-soft-s1: done"]
    assert reproduce(data, "--only", "soft", languages="fre").code == 0
    content = json.loads((data.parent / "out" / "g2p.json").read_text(encoding="utf-8"))
    assert content["rows"] == [row]  # with the fingerprint of today
    config["model"]["dropout"] = 0.1
    (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    plan = reproduce(data, "--only", "soft", "--dry-run", languages="fre")
    assert plan.stdout.splitlines() == ["fre-soft-s1: to be trained"]


def test_rows_of_another_machine_are_adopted(data):
    assert reproduce(data, "--only", "soft", languages="fre").code == 0
    out = data.parent / "out"
    there = data.parent / "there"
    there.mkdir()
    for name in ("g2p.json", "recipes.json"):
        (out / name).rename(there / name)
    shutil.rmtree(out)
    plan = reproduce(data, "--only", "soft", "--adopt", there, "--dry-run")
    assert plan.stdout.splitlines() == ["dut-soft-s1: to be trained", "fre-soft-s1: done"]
    found = reproduce(data, "--only", "soft", "--adopt", there, languages="fre")
    assert "1 cells, 1 done before" in found.stderr
    assert not (out / "runs").exists()
    assert json.loads((out / "g2p.json").read_text(encoding="utf-8"))["rows"][0]["row"] == "soft"


@pytest.mark.parametrize("text", ["{", "[]", "null"])
def test_results_that_cannot_be_read_are_a_mistake(data, text):
    there = data.parent / "there"
    there.mkdir()
    (there / "g2p.json").write_text(text)
    assert_mistake(reproduce(data, "--only", "soft", "--adopt", there), "--adopt", "g2p.json")


def test_languages_of_few_words_get_more_and_smaller_updates(tmp_path):
    grid = SoundGrid(SoundSettings(str(tmp_path), str(tmp_path)))
    many, few = (grid.recipe(SoundCell(language, "variational", 1)) for language in ("dut", "ady"))
    assert (many.data.batch_size, few.data.batch_size) == (32, 16)
    assert few.training.epochs == 3 * many.training.epochs
    assert [phase.epochs for phase in few.schedule] == [6, 6, None]
    assert few.training.learning_rate == many.training.learning_rate
    own = grid.recipe(
        SoundCell("ady", "chain-long", 1)
    )  # a row with a recipe for few words is trained by it as it is
    assert (own.training, own.data.batch_size) == (load_recipe("g2p-few-words").training, 16)


def test_mistakes_are_told_before_anything_is_trained(data):
    assert_mistake(reproduce(data, languages="xyz"), "no language 'xyz'")
    assert_mistake(reproduce(data, languages="hun"), "no hun_train.tsv", "download g2p")
    assert_mistake(reproduce(data, "--only", "sotf"), "--only sotf: no such row")
    assert_mistake(
        latentalign("reproduce", "table1", "--data", data, "--languages", "dut"), "goes with g2p alone"
    )


def test_one_run_is_measured_on_each_of_its_languages(data):
    for language in TOGETHER:
        for split in ("train", "dev"):
            (data / f"{language}_{split}.tsv").write_text(
                "".join(f"{word}\t{phones} {language}\n" for word, phones in WORDS), encoding="utf-8"
            )
    only = ("--only", "multilingual-ensemble")
    found = reproduce(data, *only, languages="dut,ady,wel_sw")
    assert found.code == 0, found.stderr
    rows = json.loads((data.parent / "out" / "g2p.json").read_text(encoding="utf-8"))["rows"]
    assert [(row["language"], row["row"]) for row in rows] == [
        (language, row)
        for language in ("ady", "wel_sw")
        for row in (*[MULTILINGUAL] * 5, "multilingual-ensemble")
    ]
    runs = data.parent / "out" / "runs"
    assert len(list(runs.rglob("model.safetensors"))) == 5  # one for each seed, none for a language
    assert rows[0]["nll"] != rows[6]["nll"]
    tags = load_config(runs / "many" / f"{MULTILINGUAL}-s1").data.train.tags
    assert tags == list(TOGETHER) == load_recipe("g2p-multilingual").data.train.tags
    again = reproduce(data, *only, "--dry-run", languages="ady")
    assert {line.split(": ")[1] for line in again.stdout.splitlines()} == {"done"}
    (data / "gre_dev.tsv").unlink()
    assert_mistake(reproduce(data, *only, languages="ady"), "gre_dev.tsv")
    assert "multilingual" not in reproduce(data, "--dry-run", languages="ady").stdout
