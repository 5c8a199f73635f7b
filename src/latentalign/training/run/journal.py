"""What a run writes about itself: log.txt and metrics.jsonl."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from latentalign.files import require_file, write_atomic


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
    content = require_file(path, "the measurements of a run").read_text(encoding="utf-8", errors="replace")
    for line in content.splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


def epoch_of_weights(records: list[dict[str, Any]]) -> float | None:
    """When the weights of a run were validated, by its records; those of earlier versions keep the best ones."""
    epochs: list[float] = [record["epoch"] for record in records if record.get("kept", record.get("best"))]
    return epochs[-1] if epochs else None
