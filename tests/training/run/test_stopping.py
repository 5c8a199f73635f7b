"""What can go wrong on the way: numbers that are not finite, disks that are full, files that are hostile."""

import errno
import os
import pickle
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from latentalign.errors import UserError
from latentalign.training.run import checkpoints
from latentalign.training.run.checkpoints import (
    DamagedCheckpoint,
    VerifiedCheckpoints,
    checkpoint_path,
    list_checkpoints,
    load_checkpoint,
    newest_good,
    prune,
)
from latentalign.training.run.stopping import NonFinite
from latentalign.training.trained_run import load
from tests.training import copying
from tests.training.helpers import last_state, run, same_training, weights

CONTENT = {"place": {"step": 1}, "learning": {}, "weights": torch.arange(6.0)}


def test_a_nan_in_the_data_names_step_batch_and_tensor(tmp_path: Path) -> None:
    with pytest.raises(NonFinite) as caught:
        run(tmp_path / "run", data={"poison": 33}, training={"epochs": 3.0, "checkpoint": {"every_steps": 1}})
    message = str(caught.value)
    assert caught.value.code == 70
    assert "\n" not in message
    assert f"step {caught.value.number}: the loss is not finite: the batch itself has" in message
    examples = [index for batch in caught.value.examples for index in batch]
    assert 33 in examples
    assert f"batch: examples {', '.join(map(str, sorted(examples)))}" in message
    assert message in (tmp_path / "run" / "log.txt").read_text()
    if caught.value.number > 1:
        state = last_state(tmp_path / "run")
        assert state["place"]["step"] == caught.value.number - 1
        assert f"step-{caught.value.number - 1:09d}" in message
        assert all(bool(torch.isfinite(tensor).all()) for tensor in state["state_dict"].values())


def test_the_first_module_that_went_wrong_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [0]

    def poisoned(self: copying.CopyModel, batch: Any, *, with_posterior: bool = False) -> Any:
        steps[0] += 1
        if steps[0] >= 6:  # overflow inside the memory's layer, as a rate too high would do
            with torch.no_grad():
                self.query.weight.mul_(1e30)
        return problem(self, batch, with_posterior=with_posterior)

    problem = copying.CopyModel.problem
    monkeypatch.setattr(copying.CopyModel, "problem", poisoned)
    with pytest.raises(
        NonFinite, match=r"step \d+: the (loss|gradient) is not finite: .*(query|prior|memory)"
    ):
        run(tmp_path / "run", training={"epochs": 2.0, "validate_every": None})


def test_an_infinite_gradient_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    init = copying.CopyModel.__init__

    def hooked(self: copying.CopyModel, *arguments: Any, **named: Any) -> None:
        init(self, *arguments, **named)
        self.head.weight.register_hook(lambda gradient: gradient * float("inf"))

    monkeypatch.setattr(copying.CopyModel, "__init__", hooked)
    with pytest.raises(NonFinite, match=r"step 1: the gradient is not finite: that of head\.weight has"):
        run(tmp_path / "run")


def test_a_checkpoint_carries_its_checksum(tmp_path: Path) -> None:
    VerifiedCheckpoints().save_checkpoint(CONTENT, checkpoint_path(tmp_path, 12))
    ((step, path),) = list_checkpoints(tmp_path)
    assert step == 12
    assert torch.equal(load_checkpoint(path)["weights"], CONTENT["weights"])  # type: ignore[arg-type]
    assert torch.equal(torch.load(path, weights_only=True)["weights"], CONTENT["weights"])  # type: ignore[arg-type]


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "other"])
def test_damage_is_found(tmp_path: Path, damage: str) -> None:
    VerifiedCheckpoints().save_checkpoint(CONTENT, checkpoint_path(tmp_path, 12))
    ((_, path),) = list_checkpoints(tmp_path)
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[-40] ^= 4
    elif damage == "cut":
        content = content[:-1]
    elif damage == "empty":
        content = bytearray()
    else:
        content = bytearray(b"hello")
    path.write_bytes(content)
    with pytest.raises(DamagedCheckpoint, match="checksum"):
        load_checkpoint(path)


def test_pruning_keeps_the_newest_and_the_best(tmp_path: Path) -> None:
    for step in (3, 6, 9, 12, 15):
        VerifiedCheckpoints().save_checkpoint({**CONTENT, "step": step}, checkpoint_path(tmp_path, step))
    (tmp_path / "checkpoints" / ".step-000000018-x.ckpt.abc.part").write_text("left by a killed writer")
    prune(tmp_path, keep=2, kept_step=6)
    assert [step for step, _ in list_checkpoints(tmp_path)] == [15, 12, 6]
    assert len(list((tmp_path / "checkpoints").iterdir())) == 3


class Mischief:
    """A pickle that writes a file when it is loaded."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (os.system, (f"touch {self.target}",))


def test_a_crafted_pickle_in_a_run_folder_executes_nothing(tmp_path: Path) -> None:
    folder, victim = tmp_path / "run", tmp_path / "executed"
    run(folder, training={"epochs": 1.0, "checkpoint": {"every_steps": 4}})
    pickle.loads(pickle.dumps(Mischief(tmp_path / "proof")))
    assert (tmp_path / "proof").exists(), "the pickle does what it is meant to do"
    # as a checkpoint with a right checksum and a step beyond all others, in both of torch's formats
    for step, legacy in ((900, False), (901, True)):
        target = checkpoint_path(folder, step)
        payload = {**CONTENT, "mischief": Mischief(victim)}
        torch.save(payload, target, _use_new_zipfile_serialization=not legacy)
        digest = checkpoints.hashlib.sha256(target.read_bytes()).hexdigest()[:16]
        target.rename(target.with_name(f"{target.stem}-{digest}.ckpt"))
    bare = checkpoint_path(folder, 902)
    bare.write_bytes(pickle.dumps(Mischief(victim)))
    digest = checkpoints.hashlib.sha256(bare.read_bytes()).hexdigest()[:16]
    bare.rename(bare.with_name(f"{bare.stem}-{digest}.ckpt"))
    said: list[str] = []
    good = newest_good(folder, said.append)
    assert good is not None
    assert good[1]["place"]["step"] == 8
    assert len(said) == 3
    run(folder, resume=True, training={"epochs": 1.5, "checkpoint": {"every_steps": 4}})
    assert not victim.exists()
    # as the model itself
    (folder / "model.safetensors").write_bytes(pickle.dumps(Mischief(victim)))
    with pytest.raises(UserError, match="damaged model file"):
        load(folder)
    # as the recipe
    (folder / "config.yaml").write_text(f"!!python/object/apply:os.system ['touch {victim}']\n")
    with pytest.raises(UserError, match="expected YAML"):
        load(folder)
    assert not victim.exists()


@pytest.mark.parametrize("problem", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_checkpoint_that_cannot_be_written_leaves_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: int
) -> None:
    settings: dict[str, Any] = {"training": {"epochs": 2.0, "checkpoint": {"every_steps": 3}}}
    run(tmp_path / "whole", **settings)
    written = [0]

    def failing(path: Path, data: bytes) -> None:
        written[0] += 1
        if written[0] == 3:
            raise OSError(problem, os.strerror(problem), str(path))
        original(path, data)

    original = checkpoints.write_atomic
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "write_atomic", failing)
        with pytest.raises(UserError) as caught:
            run(tmp_path / "run", **settings)
    message = str(caught.value)
    assert os.strerror(problem) in message
    assert "the last good checkpoint is step-000000006" in message
    assert "latentalign train --resume" in message
    run(tmp_path / "run", resume=True, **settings)
    assert same_training(tmp_path / "run", tmp_path / "whole")


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A file system of 1 MB; skipped where one may not be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False)


def test_a_real_disk_that_fills_up(tmp_path: Path, small_disk: Path) -> None:
    settings: dict[str, Any] = {
        "model": {"size": 512},
        "training": {"epochs": 2.0, "checkpoint": {"every_steps": 1, "keep": 50}},
    }
    with pytest.raises(UserError, match=r"cannot be written \(No space left on device\).*step-\d+") as caught:
        run(small_disk / "run", **settings)
    assert "\n" not in str(caught.value)
    kept = list_checkpoints(small_disk / "run")
    assert kept
    for _, path in kept:
        load_checkpoint(path)  # each one that is there is whole
    shutil.copytree(small_disk / "run", tmp_path / "run")
    run(tmp_path / "run", resume=True, **settings)
    run(tmp_path / "whole", **settings)
    assert same_training(tmp_path / "run", tmp_path / "whole")


def test_a_folder_that_may_not_be_written() -> None:
    with pytest.raises(UserError, match=r"--out .*: cannot be made"):
        run(Path("/proc/latentalign-test/run"))


@pytest.mark.parametrize("damage", ["cut", "empty", "missing", "foreign", "no-config", "no-asset"])
def test_a_damaged_run_is_told_in_one_line(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "run"
    run(folder, training={"epochs": 0.1})
    model = folder / "model.safetensors"
    messages = {
        "cut": "damaged model file",
        "empty": "damaged model file",
        "missing": r"has no model\.safetensors",
        "foreign": "not trained with the files beside them",
        "no-config": "not a run folder",
        "no-asset": r"labels\.txt is missing",
    }
    if damage == "cut":
        model.write_bytes(model.read_bytes()[:-10])
    elif damage == "empty":
        model.write_bytes(b"")
    elif damage == "missing":
        model.unlink()
    elif damage == "foreign":
        run(tmp_path / "other", model={"size": 5}, training={"epochs": 0.1})
        shutil.copy(tmp_path / "other" / "model.safetensors", model)
    elif damage == "no-config":
        (folder / "config.yaml").unlink()
    else:
        (folder / "labels.txt").unlink()
    with pytest.raises(UserError, match=messages[damage]) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_a_run_moves_with_its_folder(tmp_path: Path) -> None:
    run(tmp_path / "run", training={"epochs": 0.5})
    before = weights(tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    moved = (tmp_path / "run").rename(tmp_path / "elsewhere" / "renamed")
    loaded = load(moved)
    assert all(
        torch.equal(dict(loaded.model.named_parameters())[name], value) for name, value in before.items()
    )
