"""Every file of every kind of folder that we read, damaged in every way: told in a line, or without any effect.

A run, an aligner, prepared files and generated scenes come from disks, copies and other people. A command either gives
what it gives with the undamaged folder, or says in one line what is the matter; it neither hangs nor guesses.
"""

import os
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.cli.command import Outcome, latentalign
from tests.cli.strange import small_recipe
from tests.cli.test_command_fuzz import SHARES, share_of, verdict
from tests.inspector.untrained import SMALL_VQA, WORLDS

SECONDS = 20  # that no damage may take
ROOM = 1 << 30  # bytes that a command may take
SCENES = {"train_images": 6, "valid_images": 6, "questions_per_image": 2}


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _instead(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.unlink()
        make(path)

    return damage


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "cut": _cut,
    "flipped": _flip,
    "folder": _instead(Path.mkdir),
    "pipe": _instead(os.mkfifo),
    "dangling": _instead(lambda path: path.symlink_to("nowhere")),
    "device": _instead(lambda path: path.symlink_to("/dev/zero")),
}
CONTENTS = {
    "bytes": bytes(range(256)) * 4,
    "null": b"null\n",
    "list": b"[]\n",
    "number": b"3\n",
    "mapping": b"{}\n",
    "list of lists": b"[[1, 2], [3]]\n",
    "nan": b'{"format": NaN, "a": Infinity}\n',
    "deep": b"[" * 100_000,
    "half a character": b'{"format": "\\ud800"}\n',
    "long number": b"9" * 6000,
}
DAMAGES["empty"] = lambda path: path.write_bytes(b"")
for _name, _content in CONTENTS.items():
    DAMAGES[_name] = lambda path, content=_content: path.write_bytes(content)


class Places:
    """One folder of every kind, and the command that reads it."""

    def __init__(self, folder: Path) -> None:
        text = small_recipe(folder / "text", lines=30).parent
        recipe = text / "recipe.yaml"
        self.files = {"source": text / "text.de", "target": text / "text.en"}
        pair = ("--source", self.files["source"], "--target", self.files["target"])
        _done("train", recipe, "--out", folder / "run", "--set", "objective=variational")
        _done("align", *pair, "--save", folder / "aligner")
        _done("prepare", recipe, "--to", folder / "prepared")
        memory = {"task": "memory", "data": {"worlds": WORLDS, "memory": 10}, "model": {"size": 8}}
        _done("train", _write(folder / "memory.yaml", memory), "--out", folder / "memory")
        self.story = folder / "story"
        self.story.write_text("mary is in the garden\n")
        data = {"folder": str(folder / "scenes"), "scenes": SCENES, "min_answer_count": 1}
        self.vqa = _write(folder / "vqa.yaml", {"task": "vqa", "data": data, "model": SMALL_VQA})
        _done("train", self.vqa, "--out", folder / "vqa")
        gaussian = {"model": {"latent": 2, "hidden": 4}, "objective": "variational"}
        gaussian["objective"] = {"name": "variational", "estimator": "pathwise"}
        _done(
            "train",
            _write(folder / "gau.yaml", {"task": "gaussian", **gaussian}),
            "--out",
            folder / "gaussian",
        )
        translate = ("translate", folder / "run", "--input", text / "text.de", "--beam", 2, "--batch-size", 8)
        question = ("--question", "where is mary ?", "--story", self.story)
        self.commands: dict[str, list[tuple]] = {
            "run": [
                (*translate, "--max-length-factor", 0.1),
                ("plot", folder / "run", "--curves", "-o", folder / "curves.svg"),
                ("train", "--resume", folder / "run", "--set", "training.epochs=0.2"),
            ],
            "aligner": [("align", folder / "aligner", *pair)],
            "prepared": [("check", recipe, "--set", f"data.prepared={folder / 'prepared'}")],
            "memory": [("answer", folder / "memory", *question)],
            "vqa": [("evaluate", folder / "vqa")],
            "scenes": [("check", self.vqa)],
            "gaussian": [("evaluate", folder / "gaussian")],
        }


def _done(*words: str | Path) -> None:
    short = ("--set", "training.epochs=0.1") if words[0] == "train" else ()
    found = latentalign(*words, *short)
    assert found.code == 0, found.stderr


def _write(path: Path, values: dict) -> Path:
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("damaged")


@pytest.fixture(scope="module")
def places(folder) -> Places:
    return Places(folder)


@contextmanager
def _limits() -> Iterator[None]:
    def give_up(number, frame):
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(SECONDS)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, limits[1]))  # what reads a device for ever ends soon
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _told(found: Outcome) -> str:
    """What a command said, without what differs from one run to the next."""
    return "\n".join(line for line in found.stdout.splitlines() if "seconds" not in line)


KINDS = ("run", "aligner", "prepared", "memory", "vqa", "scenes", "gaussian")


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_file_of_every_folder_damaged(folder, places, kind, share):
    original, kept = folder / kind, folder / "kept"
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(original, kept)
    names = [path.relative_to(kept) for path in sorted(kept.rglob("*")) if path.is_file()]
    names = [name for name in names if name.suffix != ".png" and "logs" not in name.parts]
    wrong, cases = [], 0
    for command in places.commands[kind]:
        _restore(kept, original)
        expected = _told(latentalign(*command))
        for name, damage in share_of(list(_cases(names, command[0])), share):
            cases += 1
            _restore(kept, original)
            DAMAGES[damage](original / name)
            with _limits():
                found = latentalign(*command)
            problem = verdict(found, 0.0)
            if "not enough memory" in found.stderr:
                problem = "it reads without end"
            told_as_before = _told(found) == expected or name.name.startswith("v2_")  # a user's questions
            if problem is None and found.code == 0 and not told_as_before:
                problem = f"other results, and not a word about it: {_told(found)[:100]!r}"
            if problem is not None:
                wrong.append(f"{command[0]} with {kind}/{name} {damage}: {problem}")
    _restore(kept, original)
    assert not wrong, f"{len(wrong)} of {cases}:\n" + "\n".join(wrong)


def _cases(names: list[Path], command: str) -> Iterator[tuple[Path, str]]:
    """Damages of content for files that are read as text, other kinds of files for all; a training takes longer."""
    for name in names:
        is_text = name.suffix in (".json", ".jsonl", ".yaml")
        if command == "plot" and name.name != "metrics.jsonl":
            continue
        for damage in DAMAGES:
            if damage in ("missing", "cut", "pipe", "list") or (
                command != "train" and (is_text or damage not in CONTENTS)
            ):
                yield name, damage


def _restore(kept: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(kept, folder)
