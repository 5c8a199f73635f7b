"""What a run writes about itself: log.txt, metrics.jsonl and environment.json."""

import json
import os
import platform
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import latentalign
from latentalign.files import write_atomic

PACKAGES = ("torch", "lightning", "numpy", "sentencepiece", "sacrebleu", "safetensors", "pydantic", "entmax")


class RunLog:
    """Lines for log.txt, and for the user on stderr. Only the first process says or writes anything."""

    def __init__(self, *, active: bool = True, echo: bool = True) -> None:
        self.active = active
        self.echo = echo
        self.path: Path | None = None
        self._early: list[str] = []
        self.write_line = _to_stderr  # a progress bar takes this over while it is on the screen

    def open(self, path: Path) -> None:
        """From now on lines go to this file; those said before are written first."""
        self.path = path
        early, self._early = self._early, []
        self._append(early)

    def __call__(self, text: str) -> None:
        if self.active and self.echo:
            self.write_line(text)
        self.note(text)

    def note(self, text: str) -> None:
        """Into log.txt only."""
        if not self.active:
            return
        line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n"
        if self.path is None:
            self._early.append(line)
        else:
            self._append([line])

    def _append(self, lines: list[str]) -> None:
        if lines and self.path is not None:
            with self.path.open("a", encoding="utf-8") as stream:
                stream.writelines(lines)


def _to_stderr(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


class Metrics:
    """metrics.jsonl: a line for every evaluation."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(record) + "\n")
            stream.flush()
            os.fsync(stream.fileno())

    def forget_after(self, step: int) -> None:
        """Drop lines of steps that a resumed run will make again, and a last line that was cut off."""
        if not self.path.exists():
            return
        kept = [line for line in read_metrics(self.path) if line.get("step", 0) <= step]
        write_atomic(self.path, "".join(json.dumps(line) + "\n" for line in kept))


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records of a metrics.jsonl; a line that was cut off by a crash is left out."""
    records = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return records


def describe_environment(seed: int, world_size: int) -> dict[str, Any]:
    """Facts that decide whether two runs can be the same."""
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "seed": seed,
        "processes": world_size,
        "threads": torch.get_num_threads(),
        "versions": {
            "latentalign": latentalign.__version__,
            "python": platform.python_version(),
            **_versions(),
        },
        "git_revision": git_revision(),
        "host": {
            "system": platform.platform(),
            "machine": platform.machine(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "gpus": [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())],
        },
    }


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def git_revision() -> str | None:
    """The commit of the checkout the package runs from, with `+changes` if it differs; None when installed."""
    folder = Path(latentalign.__file__).parent
    try:
        top = _git(folder, "rev-parse", "--show-toplevel")
        if Path(top) not in folder.parents or not (Path(top) / "pyproject.toml").is_file():
            return None
        changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
        return _git(folder, "rev-parse", "HEAD") + ("+changes" if changes else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()
