"""Strange values for every option of every command, by the kind of the option; strange files; strange settings."""

import gzip
import inspect
import os
import random
import socket
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from latentalign.cli import find_command
from tests.translation.tiny import SENTENCES, TARGETS

WHOLE = [
    "-1",
    "0",
    "1",
    "2147483647",
    "2147483648",
    "100000000000000",
    "9" * 5000,
    "nan",
    "",
    "1.5",
    "1e3",
    "x",
    "０",
]
NUMBERS = ["nan", "inf", "-inf", "1e999", "-1", "0", "1e308", "-1e308", "1e-320", "", "x", "0x10", "1_0"]
TEXTS = [
    "", " ", "x" * 300, "a\nb", "ä\u0301", "\udc80", "a:b", "[", "{a: 1}", "../..", "--", "\x1b[31m", "%s{0}",
    "kmax:0", "kmax:-1", "kmax:x", "kmax:99999999999999999999", "sample:0", "sample:1e9", "sample:99999999", "exact:3",
    "0-0 9-9", "0-0:nan", "0?0:2", "1-", "cuda", "mps", "cuda:99", "posterior", "exact", "union", "null", "\u2028",
]  # fmt: skip
SETTINGS = [
    "",
    "=",
    "x",
    "=3",
    "a=b",
    "training",
    ".=1",
    "training.=1",
    "schedule.0=1",
    "training.epochs.x=1",
]
VALUES = [
    ".nan", "-.inf", "1e999", "-1", "0", "1e308", "9007199254740992", "99999999999999999999", "null", "[]", "[1, 2]",
    "{}", "{a: b}", "{name: nothing}", "true", "2001-01-01", "2001-99-99", "text", "''", "'\\n'", '"\\ud800"', '"\\0"',
    "&a [*a]", "!!python/name:os.system x", "[" * 26 + "]" * 26, "{1: 2}", "'" + "x" * 300 + "'",
]  # fmt: skip


def fill(folder: Path) -> None:
    """Write the strange files, again if need be."""
    contents = {
        "empty": b"",
        "one line": b"ja\n",
        "blank lines": b"\n \n\t\n",
        "no end": b"ja",
        "bytes": bytes(range(256)) * 3,
        "latin-1": "Mädchen\n".encode("latin-1"),
        "utf-16": "Mädchen\n".encode("utf-16"),
        "mark": b"\xef\xbb\xbfja\n",
        "nul": b"a\0b\n",
        "separators": "a\u2028b\x0bc\x85d\re\n".encode(),
        "control": b"\x1b[31mja\x07\n",
        "long line": b"ja " * 4000 + b"\n",
        "long word": b"x" * 5000 + b"\n",
        "html": b"<html><body>404</body></html>\n",
        "json": b'{"a": 1}\n',
        "yaml": b"task: translation\n",
        "deep": b"[" * 5000,
        "bomb": b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
        "links": b"0-0 1-1\n9999999999999999999999-0\n",
    }
    packed = gzip.compress(b"ja\n" * 50)
    contents["gzip"] = packed
    contents["cut gzip"] = packed[:-9]
    contents["broken gzip"] = packed[:12] + b"\xff\xff\xff" + packed[15:]
    contents["gzip head"] = packed[:2]
    for name, content in contents.items():
        (folder / name).write_bytes(content)


def strange_files(folder: Path) -> dict[str, Path]:
    """One of every kind of thing that a path can name."""
    folder.mkdir()
    fill(folder)
    (folder / "folder").mkdir()
    (folder / "full folder").mkdir()
    (folder / "full folder" / "notes").write_text("mine")
    (folder / "dangling").symlink_to(folder / "gone")
    (folder / "circle").symlink_to(folder / "circle")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(folder)
        listener.bind("socket")
        os.chdir(here)
    paths = {path.name: path for path in folder.iterdir()}
    elsewhere = {
        "missing": folder / "missing",
        "inside a file": folder / "empty" / "file",
        "300 letters": folder / ("n" * 300),
        "deep path": folder / "/".join(["d"] * 2100),
        "bad bytes": folder / "\udcff",
        "null device": Path("/dev/null"),
        "full device": Path("/dev/full"),
        "zero device": Path("/dev/zero"),
        "process folder": Path("/proc/self/nothing"),
        "nothing": Path(),
    }
    return {**paths, **elsewhere}


@dataclass(frozen=True)
class Option:
    """An option of a command, or one of its arguments."""

    command: str
    name: str  # --beam; an argument has the name of its parameter
    kind: type
    is_flag: bool = False

    @property
    def is_argument(self) -> bool:
        return not self.name.startswith("-")


def options_of(command: str) -> list[Option]:
    """What a command takes, read off its definition."""
    found = []
    for name, parameter in inspect.signature(find_command(command)).parameters.items():
        hint = parameter.annotation
        info = next(
            (
                part
                for part in (parameter.default, *typing.get_args(hint))
                if type(part).__name__ in ("OptionInfo", "ArgumentInfo")
            ),
        )
        declared = [text for text in info.param_decls or () if text.startswith("--")]
        is_argument = type(info).__name__ == "ArgumentInfo"
        shown = name if is_argument else declared[0] if declared else f"--{name.replace('_', '-')}"
        kind = _plain(hint)
        found.append(Option(command, shown, kind, is_flag=kind is bool))
    return found


def _plain(hint: typing.Any) -> type:
    """The type behind Annotated, None and list."""
    while typing.get_args(hint):
        parts = [part for part in typing.get_args(hint) if isinstance(part, type) or typing.get_args(part)]
        parts = [part for part in parts if part is not type(None)]
        hint = parts[0]
    return hint


def strange_values(option: Option, files: dict[str, Path]) -> Iterator[str]:
    """What to try for an option."""
    if option.name == "--set":
        yield from SETTINGS
        yield from (f"{key}={value}" for key in ("seed", "model.dropout", "data.folder") for value in VALUES)
    elif option.kind is Path:
        yield from map(str, files.values())
    elif option.kind is int:
        yield from WHOLE
    elif option.kind is float:
        yield from NUMBERS
    elif option.kind is str:
        yield from TEXTS
        if option.is_argument:
            yield from map(str, files.values())


# --- settings of recipes -------------------------------------------------------------------


def small_recipe(folder: Path, *, lines: int = 12) -> Path:
    """A translation recipe that is checked in a blink."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen = random.Random(1).choices(range(len(SENTENCES)), k=lines)
    (folder / "text.de").write_text("".join(SENTENCES[n] + "\n" for n in chosen))
    (folder / "text.en").write_text("".join(TARGETS[n] + "\n" for n in chosen))
    pair = {"source": "text.de", "target": "text.en"}
    values = {
        "task": "translation",
        "data": {
            "folder": str(folder),
            "train": pair,
            "valid": pair,
            "tokenizer": {"kind": "whitespace"},
            "batch_size": 4,
        },
        "model": {
            "embedding_size": 4,
            "memory_size": 4,
            "decoder_size": 4,
            "attention_size": 4,
            "inference_network": {"memory_size": 4},
        },
        "objective": "soft",
        "training": {"epochs": 0.1, "threads": 1},
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def keys_of(section: type, prefix: str = "") -> Iterator[str]:
    """Every key of a recipe, nested ones with their places."""
    for name, field in section.model_fields.items():  # type: ignore[attr-defined]
        kinds = [
            part for part in (field.annotation, *typing.get_args(field.annotation)) if isinstance(part, type)
        ]
        inner = next((part for part in kinds if hasattr(part, "model_fields")), None)
        if inner is not None:
            yield from keys_of(inner, f"{prefix}{name}.")
        yield f"{prefix}{name}"
