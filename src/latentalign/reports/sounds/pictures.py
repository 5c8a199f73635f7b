"""Letters against phones: prior and posterior of soft attention beside those of a chain that never goes back."""

from collections.abc import Sequence
from pathlib import Path

from latentalign.reports.figures.heatmap import heatmap, save
from latentalign.reports.sounds.grid import SoundGrid, words_of
from latentalign.reports.sounds.rows import SoundCell
from latentalign.training.trained_run import load

BESIDE = ("soft", "chain-monotone")
WORDS = 3


def draw_words(grid: SoundGrid, done: Sequence[SoundCell], out: Path) -> list[str]:
    """The three longest development words of the first language that has both runs; the names of the pictures.

    Where runs are not at hand (their rows were adopted), pictures that are there already stay.
    """
    for cell in done:
        pair = [SoundCell(cell.language, row, cell.seed) for row in BESIDE]
        if all(one in done and grid.recall_here(one) for one in pair):
            return _draw(grid, pair, out)
    return sorted(path.name for path in out.glob("words-*.png"))


def _draw(grid: SoundGrid, cells: Sequence[SoundCell], out: Path) -> list[str]:
    language = cells[0].language
    table = grid.table(language, "dev")
    assert table is not None
    words = sorted(words_of(table), key=lambda pair: (-len(pair[0]), pair[0]))[:WORDS]
    runs = {cell.row: load(grid.folder(cell), device="cpu") for cell in cells}
    aligned = {row: list(run.aligner().align(words, exact=True)) for row, run in runs.items()}
    names = []
    for number in range(len(words)):
        panels = {}
        for row, found in aligned.items():
            panels[f"{row}: prior"] = found[number].prior
            panels[f"{row}: posterior"] = found[number].probs("exact")
        one = aligned[BESIDE[0]][number]
        names.append(f"words-{language}-{number + 1}.png")
        save(heatmap(panels, one.source_words, one.target_words), out / names[-1])
    return names
