"""environment.json: the facts that decide whether two runs can be the same."""

import json
import os
import platform
import subprocess
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import latentalign
from latentalign.errors import UserError
from latentalign.files import read_json, write_atomic
from latentalign.training.recipe.recipes import Recipe

PACKAGES = ("torch", "lightning", "numpy", "sentencepiece", "sacrebleu", "safetensors", "pydantic", "entmax")


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


def note_environment(recipe: Recipe, folder: Path, world_size: int) -> list[str]:
    """Add this session's facts to environment.json; what differs from the first session and may change results."""
    path = folder / "environment.json"
    sessions = _sessions(path)
    facts = describe_environment(recipe.seed, world_size)
    differences = []
    if sessions:
        first = sessions[0]
        for key in ("threads", "processes", "versions", "git_revision", "host"):
            if first.get(key) != facts[key]:
                differences.append(key.replace("_", " "))
    write_atomic(path, json.dumps([*sessions, facts], indent=2) + "\n")
    return differences


def _sessions(path: Path) -> list[dict[str, Any]]:
    """What was noted before; a file that says nothing is begun anew."""
    try:
        found = read_json(path)
    except UserError:
        return []
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


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
