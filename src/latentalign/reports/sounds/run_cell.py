"""One cell in a process of its own: `python -m latentalign.reports.sounds.run_cell SETTINGS LANGUAGE ROW SEED`."""

import sys
from pathlib import Path

from latentalign.reports.grid.job_process import exit_code_of
from latentalign.reports.sounds.grid import SoundGrid, SoundSettings
from latentalign.reports.sounds.rows import SoundCell


def work(settings: Path, cell: SoundCell) -> None:
    """Train and measure one cell."""
    SoundGrid(SoundSettings.from_json(settings.read_text(encoding="utf-8"))).work(cell)


def main(arguments: list[str]) -> int:
    """The exit code: 0 when the cell is done."""
    settings, language, row, seed = arguments
    return exit_code_of(lambda: work(Path(settings), SoundCell(language, row, int(seed))))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
