"""A grid of training runs on disk: what is finished is found, what is missing is trained, nothing twice."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from latentalign.errors import UserError
from latentalign.files import to_json, write_atomic
from latentalign.reports.adopted import find_results
from latentalign.reports.grid.cells import Cell, build_cells
from latentalign.reports.grid.fingerprint import fingerprint
from latentalign.reports.grid.phase_plan import RowSpec
from latentalign.reports.grid.settings import GridSettings
from latentalign.reports.grid.warmups import Warmup, shared_warmups
from latentalign.training.recipe.overrides import apply_settings, merge
from latentalign.training.recipe.recipes import Recipe, find_recipe, read_recipe
from latentalign.training.recipe.schedule import schedule_of
from latentalign.training.run.checkpoints import list_checkpoints, newest_good
from latentalign.training.run.config_file import CONFIG, load_config
from latentalign.training.run.forking import fork_run
from latentalign.training.run.journal import read_metrics
from latentalign.training.run.weights import MODEL
from latentalign.training.train import train

RESULTS = "results"  # of measuring, in the folder of the runs


class Grid:
    """Cells with their run folders and measurements."""

    def __init__(self, settings: GridSettings, specs: Mapping[str, RowSpec]) -> None:
        self.settings = settings
        self.specs = specs  # all rows of the task, those of other tables too: they share warm-ups
        self.runs = Path(settings.runs)
        self._fingerprints: dict[Path, str | None] = {}

    @cached_property
    def base(self) -> dict[str, Any]:
        """The base recipe's values with the settings on top."""
        values = apply_settings(read_recipe(find_recipe(self.settings.recipe)), self.settings.changes)
        if values.get("task") != self.settings.task:
            raise UserError(
                f"--recipe {self.settings.recipe}: expected a recipe of the task {self.settings.task}, "
                f"found {values.get('task')!r}"
            )
        return merge(values, {"data": dict(self.settings.data)})

    @cached_property
    def _all_cells(self) -> dict[str, Cell]:
        cells = build_cells(self.base, self.specs.values(), self.settings.seeds, every_seed=True)
        return {cell.name: cell for cell in cells}

    @cached_property
    def warmups(self) -> dict[str, list[Warmup]]:
        """The shared warm-ups on the way of every cell."""
        return shared_warmups(list(self._all_cells.values()))

    def cell(self, name: str) -> Cell:
        """A cell by its name, seed included."""
        return self._all_cells[name]

    def cells(self, names: tuple[str, ...]) -> list[Cell]:
        """The cells of these rows, with the seeds that each has."""
        only = self.settings.only
        if unknown := [name for name in only if name not in self.specs]:
            raise UserError(f"--only {unknown[0]}: no such row; choose from {', '.join(self.specs)}")
        chosen = [self.specs[name] for name in names if not only or name in only]
        return build_cells(self.base, chosen, self.settings.seeds, every_seed=self.settings.every_seed)

    # --- runs ---

    def find(self, recipe: Recipe) -> Path | None:
        """A finished run by this recipe, trained here or adopted."""
        wanted = fingerprint(recipe)
        for folder in self._folders():
            if self._fingerprint(folder) == wanted and is_complete(folder):
                return folder
        return None

    def _folders(self) -> Iterator[Path]:
        for place in (self.runs, *map(Path, self.settings.adopt)):
            if place.is_dir():
                yield from sorted(path.parent for path in place.glob(f"*/{CONFIG}"))

    def _fingerprint(self, folder: Path) -> str | None:
        if folder not in self._fingerprints:
            try:
                self._fingerprints[folder] = fingerprint(load_config(folder))
            except UserError:  # another version's run, or no run at all
                self._fingerprints[folder] = None
        return self._fingerprints[folder]

    def train(self, part: Cell | Warmup, *, echo: bool = False) -> Path:
        """Bring a cell or a warm-up to its end: find it, go on with it, fork it, or start it."""
        if (found := self.find(part.recipe)) is not None:
            return found
        folder, recipe = self.runs / part.name, part.recipe
        if (folder / CONFIG).is_file():
            if fingerprint(load_config(folder)) != fingerprint(recipe):
                raise UserError(
                    f"{folder}: holds a run by another recipe; choose another folder with --runs, or remove it"
                )
            train(load_config(folder), folder, resume=True, echo=echo)
        elif (source := self._nearest_warmup(part)) is not None:
            schedule = schedule_of(recipe)
            forked = fork_run(source, folder, schedule=recipe.schedule, epochs=schedule.total)
            train(forked, folder, resume=True, echo=echo)
        else:
            train(recipe, folder, echo=echo)
        self._fingerprints.pop(folder, None)
        return folder

    def warmups_of(self, part: Cell | Warmup) -> list[Warmup]:
        """Shared warm-ups before the end of a cell or a warm-up, earliest first."""
        if isinstance(part, Cell):
            return self.warmups.get(part.name, [])
        for chain in self.warmups.values():
            if part in chain:
                return chain[: chain.index(part)]
        return []

    def _nearest_warmup(self, part: Cell | Warmup) -> Path | None:
        for warmup in reversed(self.warmups_of(part)):
            folder = self.find(warmup.recipe)
            if folder is not None and list_checkpoints(folder):
                return folder
        return None

    # --- measurements ---

    def results(self, cell: Cell) -> Path:
        """Where a cell's measurements are kept."""
        return self.runs / RESULTS / cell.name

    def remember(self, cell: Cell, name: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """A measurement of a cell, taken once."""
        path = self.results(cell) / f"{name}.json"
        known = self._recall_here(cell, name)
        if known is not None:
            return known
        values = measure()
        write_atomic(path, to_json({"of": self._identity(cell), **values}, indent=1) + "\n")
        return values

    def recall(self, cell: Cell, name: str) -> dict[str, Any] | None:
        """A measurement that was taken before, here or in adopted results, under the same conditions."""
        known = self._recall_here(cell, name)
        return self._adopt(cell, name) if known is None else known

    def _adopt(self, cell: Cell, study: str) -> dict[str, Any] | None:
        named = {"row": cell.spec.name, "seed": cell.seed}
        for results in find_results(self.settings.adopt, study):
            if rows := results.rows(cell.recipe, **named, beam=self.settings.beam):
                others = {part: results.entries(part, **named) for part in ("history", "curve")}
                tests = results.entries("significance", system=cell.spec.name, seed=cell.seed)
                return {"rows": rows, **others, "significance": tests}
        return None

    def _recall_here(self, cell: Cell, name: str) -> dict[str, Any] | None:
        path = self.results(cell) / f"{name}.json"
        try:
            values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return values if values.pop("of", None) == self._identity(cell) else None

    def _identity(self, cell: Cell) -> dict[str, Any]:
        return {"recipe": fingerprint(cell.recipe), **self._measured_on}

    @cached_property
    def _measured_on(self) -> dict[str, Any]:
        return self.settings.measured_on


def is_complete(folder: Path) -> bool:
    """Whether a run has been trained to the end of its schedule."""
    if not (folder / MODEL).is_file():
        return False
    recipe = load_config(folder)
    end = schedule_of(recipe).total - 1e-6
    if list_checkpoints(folder):
        good = newest_good(folder, lambda text: None)
        return good is not None and (good[1]["place"]["position"] >= end or good[1]["learning"]["stopped"])
    # a folder that was copied without its checkpoints
    path = folder / "metrics.jsonl"
    records = read_metrics(path) if path.is_file() else []
    return bool(records) and records[-1].get("epoch", 0.0) >= end
