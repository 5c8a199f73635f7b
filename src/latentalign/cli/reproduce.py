"""`reproduce`: the paper's tables and figures on one's own data."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from latentalign.errors import UserError, hint_at
from latentalign.files import require_folder, to_json

if TYPE_CHECKING:
    from latentalign.reports.grid.settings import GridSettings

MOST_JOBS = 256
LETTERS_TO_SOUNDS = "g2p"  # a study over languages, with rows of its own
STUDIES = ("table1", "table2", "table3", "figure3", "gradients", LETTERS_TO_SOUNDS)


@dataclass(frozen=True)
class Reproduce:
    """The paper's tables and figures on your data: trains what is missing, measures, writes Markdown, HTML and JSON.

    A cell that is finished is never trained again; start the same command to go on after an interruption.
    """

    study: Annotated[
        str, typer.Argument(metavar="STUDY", help=f"{', '.join(STUDIES[:-1])} or {STUDIES[-1]}.")
    ]
    data: Annotated[Path, typer.Option(help="The data folder: what the recipe trains on, and the test set.")]
    out: Annotated[Path, typer.Option(help="Where tables and pictures go.")] = Path("reproduced")
    runs: Annotated[
        Path | None, typer.Option(help="Where runs are trained and measured; default OUT/runs.")
    ] = None
    recipe: Annotated[
        str | None, typer.Option(help="The recipe that every row is a change of; default: the task's.")
    ] = None
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a value of the recipe.")
    ] = None
    task: Annotated[str, typer.Option(help="translation or vqa.")] = "translation"
    seeds: Annotated[
        str, typer.Option(help="Seeds, 1,2: the principal rows with all of them, the others with the first.")
    ] = "1"
    every_seed: Annotated[bool, typer.Option("--every-seed", help="All rows with all seeds.")] = False
    only: Annotated[list[str] | None, typer.Option(help="Only this row (may be repeated).")] = None
    adopt: Annotated[
        list[Path] | None,
        typer.Option(help="A folder with finished runs, or with results, to take instead of training."),
    ] = None
    jobs: Annotated[int, typer.Option(help="Cells side by side, one thread each; 0: in this process.")] = 1
    source: Annotated[Path | None, typer.Option(help="Test sentences; default: test*.LANGUAGE in DATA.")] = (
        None
    )
    target: Annotated[Path | None, typer.Option(help="Their translations.")] = None
    languages: Annotated[
        str | None, typer.Option(help="g2p: languages, dut,fre, or medium, low, high or all.")
    ] = None
    beam: Annotated[
        int | None, typer.Option(help="Beam of the search behind BLEU (10) and error rates (5).")
    ] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what is done and what would be trained.")
    ] = False
    finished: Annotated[
        bool, typer.Option("--finished", help="Train nothing: write the results of what is finished.")
    ] = False
    json_output: Annotated[bool, typer.Option("--json", help="Print the study as one JSON object.")] = False

    def __call__(self) -> None:
        if self.study not in STUDIES:
            raise UserError(
                f"reproduce: expected a study, received {self.study!r}; {hint_at(self.study, STUDIES)}"
            )
        from latentalign.translation.beam.search import SearchOptions

        if not 0 <= self.jobs <= MOST_JOBS:
            raise UserError(f"--jobs {self.jobs}: expected 0 to {MOST_JOBS}; one for each free core")
        if self.beam is not None:
            SearchOptions(beam=self.beam)  # a mistake is found before hours of training
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        if self.study == LETTERS_TO_SOUNDS:
            self._reproduce_sounds()
        else:
            self._reproduce_paper()

    def _reproduce_paper(self) -> None:
        from latentalign.reports.grid.reproduce import describe_plan, reproduce, write_finished

        if self.languages is not None:
            raise UserError(f"--languages: goes with {LETTERS_TO_SOUNDS} alone; leave it out")
        settings = self._grid_settings()
        if self.dry_run:
            print("\n".join(describe_plan(self.study, settings)))
            return
        if self.finished:
            content = write_finished(self.study, settings, out=self.out)
        else:
            content = reproduce(self.study, settings, out=self.out, jobs=self.jobs, say=_say)
        self._print(content, self.out / f"{self.study}.md")

    def _grid_settings(self) -> "GridSettings":
        from latentalign.reports.grid.settings import GridSettings
        from latentalign.reports.paper.data_files import default_recipe, locate

        recipe = self.recipe or default_recipe(self.task)
        places = locate(self.task, recipe, self.data, source=self.source, target=self.target)
        return GridSettings(
            task=self.task,
            recipe=recipe,
            runs=self._runs,
            data=places.data,
            test=places.test,
            adopt=self._adopted,
            seeds=_parse_seeds(self.seeds),
            every_seed=self.every_seed,
            only=tuple(self.only or []),
            changes=tuple(self.settings or []),
            beam=10 if self.beam is None else self.beam,
        )

    def _reproduce_sounds(self) -> None:
        from latentalign.reports.sounds.grid import SoundGrid, SoundSettings
        from latentalign.reports.sounds.rows import parse_languages
        from latentalign.reports.sounds.study import choose_cells, describe, reproduce, write_finished

        require_folder(self.data, "the words of `latentalign download g2p`")
        beam = 5 if self.beam is None else self.beam
        changes = tuple(self.settings or [])
        settings = SoundSettings(str(self.data), self._runs, changes, beam, self._adopted)
        grid = SoundGrid(settings)
        languages = parse_languages(self.languages or "all")
        cells = choose_cells(grid, languages, tuple(self.only or []), _parse_seeds(self.seeds))
        if self.dry_run:
            print("\n".join(describe(grid, cells)))
            return
        if self.finished:
            content = write_finished(grid, cells, out=self.out)
        else:
            content = reproduce(settings, cells, out=self.out, jobs=self.jobs, say=_say)
        self._print(content, self.out / "README.md")

    @property
    def _adopted(self) -> tuple[str, ...]:
        for folder in self.adopt or []:
            require_folder(folder, "a folder of finished runs or of results for --adopt")
        return tuple(str(folder) for folder in self.adopt or [])

    @property
    def _runs(self) -> str:
        return str(self.runs or self.out / "runs")

    def _print(self, content: dict[str, Any], page: Path) -> None:
        print(to_json(content) if self.json_output else page.read_text(encoding="utf-8").rstrip("\n"))


def _parse_seeds(text: str) -> tuple[int, ...]:
    try:
        seeds = tuple(int(part) for part in text.replace(",", " ").split())
    except ValueError:
        seeds = ()
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise UserError(f"--seeds {text}: expected different whole numbers, for example 1,2")
    return seeds


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
