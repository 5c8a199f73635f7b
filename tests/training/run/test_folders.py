"""Run folders: never two trainers in one, never a foreign file lost, never weights with another run's files."""

import json
import multiprocessing
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from latentalign.errors import UserError
from latentalign.training.recipe.recipes import Recipe
from latentalign.training.run.lock import LOCK, hold, is_held
from latentalign.training.run.marker import MARKER, read_marker
from latentalign.training.run.weights import MODEL
from latentalign.training.trained_run import load
from tests.training import copying
from tests.training.helpers import run, weights

SHORT = {"training": {"epochs": 0.5}}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "run"
    run(folder, **SHORT)
    return folder


@pytest.fixture
def copy(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    return tmp_path / "run"


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- overwriting ---------------------------------------------------------------------------


@pytest.mark.parametrize("names", [["config.yaml"], ["config.yaml", "model.safetensors"], ["notes.txt"]])
def test_what_is_no_run_is_not_overwritten(tmp_path, names):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in names:
        (folder / name).write_text("mine")
    before = content_of(tmp_path)
    with pytest.raises(UserError, match=r"not a run folder .*run\.json"):
        run(folder, overwrite=True, **SHORT)
    assert content_of(tmp_path) == before


def test_a_run_of_an_earlier_version_is_not_overwritten(copy):
    (copy / MARKER).unlink()
    with pytest.raises(UserError, match="not a run folder"):
        run(copy, overwrite=True, **SHORT)


def test_overwriting_keeps_what_training_did_not_write(copy):
    foreign = [
        "notes.txt",
        "results/bleu.json",
        "checkpoints/mine.pt",
        "checkpoints/step-notes.md",
        "checkpoints/step-000000004.ckpt.bak",
        "logs/mine.txt",
        "logs/csv/version_0/x.md",
    ]
    for name in foreign:
        (copy / name).parent.mkdir(exist_ok=True, parents=True)
        (copy / name).write_text(f"mine: {name}")
    (copy / "link").symlink_to("notes.txt")
    old = {path.name for path in (copy / "checkpoints").glob("step-*.ckpt")}
    run(copy, overwrite=True, seed=7, **SHORT)
    for name in foreign:
        assert (copy / name).read_text() == f"mine: {name}"
    assert (copy / "link").is_symlink()
    assert old.isdisjoint(path.name for path in (copy / "checkpoints").glob("step-*.ckpt"))
    assert [path.name for path in copy.parent.iterdir()] == ["run"]
    assert load(copy).config.seed == 7


def test_a_foreign_file_with_the_name_of_a_new_one_is_kept_under_another(copy):
    # the task wrote no such file then; now it would
    marker = json.loads((copy / MARKER).read_text())
    del marker["files"]["labels.txt"]
    (copy / MARKER).write_text(json.dumps(marker))
    (copy / "labels.txt").write_text("mine")
    run(copy, overwrite=True, **SHORT)
    assert (copy / "labels.txt.kept-1").read_text() == "mine"


def test_a_mistake_leaves_the_older_run_as_it_is(copy):
    before = content_of(copy)
    with pytest.raises(UserError):
        run(copy, overwrite=True, data={"missing": True})
    assert {name: data for name, data in content_of(copy).items() if name != LOCK} == {
        name: data for name, data in before.items() if name != LOCK
    }
    assert [path.name for path in copy.parent.iterdir()] == ["run"]


def test_a_kill_while_a_run_is_replaced_loses_nothing(copy):
    (copy / "notes.txt").write_text("mine")

    def replace() -> None:
        rename = os.rename

        def second_time(source, target):
            if str(source).endswith(".part"):
                os._exit(9)
            rename(source, target)

        os.rename = second_time
        run(copy, overwrite=True, **SHORT)

    process = multiprocessing.get_context("fork").Process(target=replace)
    process.start()
    process.join()
    assert process.exitcode == 9
    assert not copy.exists(), "the moment between the two renames"
    with pytest.raises(UserError, match="the folder exists"):
        run(copy, **SHORT)  # the next one brings it back
    assert (copy / "notes.txt").read_text() == "mine"
    assert load(copy)
    assert [path.name for path in copy.parent.iterdir()] == ["run"]


# --- locks ---------------------------------------------------------------------------------


def sleep_with(folder: Path) -> None:
    with hold(folder):
        (folder / "held").touch()
        time.sleep(100)


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGTERM])
def test_a_lock_ends_with_its_process(tmp_path, kill):
    process = multiprocessing.get_context("fork").Process(target=sleep_with, args=(tmp_path,))
    process.start()
    while not (tmp_path / "held").exists():
        time.sleep(0.01)
    assert is_held(tmp_path)
    with pytest.raises(UserError, match=f"process {process.pid} on .* trains here"), hold(tmp_path):
        pass
    os.kill(process.pid, kill)
    process.join()
    assert not is_held(tmp_path)
    with hold(tmp_path):
        assert is_held(tmp_path)


def test_nobody_trains_or_resumes_where_somebody_trains(copy):
    with hold(copy):
        before = content_of(copy)
        for how in ({"resume": True}, {"overwrite": True}):
            with pytest.raises(UserError, match="trains here"):
                run(copy, training={"epochs": 1.0}, **how)
        assert content_of(copy) == before
    run(copy, resume=True, training={"epochs": 0.75})


@pytest.mark.parametrize("overwrite", [False, True])
def test_two_that_begin_at_once_do_not_mix(tmp_path, monkeypatch, overwrite):
    """The other one begins its run while this one reads its data."""
    folder = tmp_path / "run"
    prepare = Recipe.prepare
    calls = []

    def slowly(*arguments):
        calls.append(1)
        found = prepare(*arguments)
        if len(calls) == 1:
            run(folder, seed=5, **SHORT)
        return found

    monkeypatch.setattr(Recipe, "prepare", slowly)
    with pytest.raises(UserError, match="another process has begun a run there"):
        run(folder, overwrite=overwrite, **SHORT)
    assert load(folder).config.seed == 5
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_run_folder_may_be_a_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    run(tmp_path / "link", **SHORT)
    assert (tmp_path / "link").is_symlink()
    run(tmp_path / "link", overwrite=True, seed=3, **SHORT)
    assert (tmp_path / "link").is_symlink()
    assert load(tmp_path / "elsewhere").config.seed == 3


# --- parts that belong together ------------------------------------------------------------


def test_a_changed_part_is_refused(copy):
    path = copy / "labels.txt"
    path.write_text("\n".join(reversed(path.read_text().split("\n"))) + " ")
    for use in (lambda: load(copy), lambda: run(copy, resume=True, training={"epochs": 1.0})):
        with pytest.raises(UserError, match=r"labels\.txt: not the file that the run was trained with"):
            use()
    path.unlink()
    with pytest.raises(UserError, match=r"labels\.txt is missing"):
        load(copy)


def test_a_changed_model_section_is_refused(copy):
    config = copy / "config.yaml"
    config.write_text(config.read_text().replace("dropout: 0.2", "dropout: 0.4"))
    with pytest.raises(UserError, match=r"model\.dropout was 0\.2 and is 0\.4"):
        load(copy)


def test_settings_that_are_new_since_do_not_matter(copy):
    marker = json.loads((copy / MARKER).read_text())
    marker["model"]["model"].pop("dropout")  # as if it had not been a setting then
    (copy / MARKER).write_text(json.dumps(marker))
    tensors = load_file(copy / MODEL)
    save_file(tensors, copy / MODEL)  # without the checksums, which would notice
    load(copy)


def test_a_flipped_bit_of_the_weights_is_noticed(copy):
    content = bytearray((copy / MODEL).read_bytes())
    content[-3] ^= 1
    (copy / MODEL).write_bytes(content)
    with pytest.raises(UserError, match="checksum differs"):
        load(copy)


def test_weights_of_another_run_are_refused(copy, tmp_path):
    run(tmp_path / "other", model={"dropout": 0.5}, **SHORT)
    shutil.copy(tmp_path / "other" / MODEL, copy / MODEL)
    with pytest.raises(UserError, match="not trained with the files beside them"):
        load(copy)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(copy, value):
    tensors = load_file(copy / MODEL)
    name = sorted(tensors)[0]
    tensors[name].view(-1)[0] = value
    save_file(tensors, copy / MODEL)
    with pytest.raises(UserError, match=f"weight {name} has values that are NaN or infinite"):
        load(copy)


def test_runs_of_earlier_versions_load_and_go_on(copy):
    (copy / MARKER).unlink()
    (copy / LOCK).unlink()
    before = weights(copy)
    save_file(before, copy / MODEL)
    loaded = load(copy).model.state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in before.items())
    run(copy, resume=True, training={"epochs": 1.0})
    assert read_marker(copy) is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[]",
        '{"format": 1}',
        '{"format": "x"}',
        "null",
        "[" * 100_000,
        '{"format": 1, "files": 3, "model": {}, "data": ""}',
        '{"format": 1, "files": {"a": null}, "model": {}, "data": ""}',
    ],
)
def test_a_damaged_marker_is_named(copy, content):
    (copy / MARKER).write_text(content)
    with pytest.raises(UserError, match=r"run\.json: damaged"):
        load(copy)


def test_a_marker_that_is_a_pipe_is_not_waited_for(copy):
    (copy / MARKER).unlink()
    os.mkfifo(copy / MARKER)
    for read in (lambda: load(copy), lambda: run(copy, overwrite=True, **SHORT)):
        with pytest.raises(UserError, match="is a pipe"):
            read()


# --- data ----------------------------------------------------------------------------------


@pytest.mark.parametrize("with_checkpoint", [True, False])
def test_a_run_is_not_resumed_with_as_many_other_examples(copy, monkeypatch, with_checkpoint):
    if not with_checkpoint:
        shutil.rmtree(copy / "checkpoints")
    make = copying.CopyData.__init__

    def other(self, count, seed, *rest, **more):
        make(self, count, seed + 1, *rest, **more)

    monkeypatch.setattr(copying.CopyData, "__init__", other)
    before = {name: data for name, data in content_of(copy).items() if name not in ("log.txt", LOCK)}
    with pytest.raises(UserError, match="data changed since the run began"):
        run(copy, resume=True, training={"epochs": 1.0})
    assert {name: data for name, data in content_of(copy).items() if name not in ("log.txt", LOCK)} == before
