"""Training and measuring one cell; what is done is found again on disk."""

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import latentalign
from latentalign.errors import UserError
from latentalign.files import to_json, write_atomic
from latentalign.reports.adopted import AdoptedResults, find_results
from latentalign.reports.provenance import fingerprint_of, recipe_values, revision_of_run
from latentalign.reports.sounds.rows import MANY, OF_FEW_WORDS, TOGETHER, SoundCell, size_of
from latentalign.text.parallel import Pair
from latentalign.training.recipe.overrides import apply_settings, merge
from latentalign.training.recipe.recipes import Recipe, build_recipe, find_recipe, read_recipe
from latentalign.training.run.checkpoints import list_checkpoints
from latentalign.training.run.config_file import CONFIG, load_config
from latentalign.training.run.environment import git_revision
from latentalign.training.run.journal import epoch_of_weights, read_metrics
from latentalign.training.train import train
from latentalign.training.trained_ensemble import Ensemble
from latentalign.training.trained_run import Run, load
from latentalign.translation.data.corpus import read_pairs
from latentalign.translation.errors import error_rates
from latentalign.translation.task import PairsToEvaluate

STUDY = "g2p"  # the name of its results
SPLITS = ("dev", "test")
# languages of 800 words, unless their row has a recipe for them: batches of half the size, three times as many epochs
FEW_WORDS = {"batch_size": 16, "epochs": 3}


@dataclass(frozen=True)
class SoundSettings:
    """What a grid is over. Plain values: another process gets them as JSON."""

    data: str
    runs: str
    changes: tuple[str, ...] = ()  # a.b=c, over the recipes
    beam: int = 5
    adopt: tuple[str, ...] = ()  # folders with results whose rows are taken over

    @classmethod
    def from_json(cls, text: str) -> "SoundSettings":
        values = json.loads(text)
        for name in ("changes", "adopt"):
            values[name] = tuple(values[name])
        return cls(**values)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class SoundGrid:
    """Runs and measurements of cells, below one folder."""

    def __init__(self, settings: SoundSettings) -> None:
        self.settings = settings
        self.runs = Path(settings.runs)
        self._adopted = find_results(settings.adopt, STUDY)

    def table(self, language: str, split: str) -> Path | None:
        """The words of a language: in the data folder, or in a folder of its size."""
        data = Path(self.settings.data)
        for folder in (data, data / size_of(language)):
            if (path := folder / f"{language}_{split}.tsv").is_file():
                return path
        return None

    def require(self, language: str) -> None:
        """Refuse a language whose words are not there."""
        for split in ("train", "dev"):
            if self.table(language, split) is None:
                raise UserError(
                    f"--data {self.settings.data}: no {language}_{split}.tsv; "
                    f"`latentalign download g2p --to {self.settings.data}` gets it"
                )

    def changes(self, cell: SoundCell) -> dict[str, Any]:
        """What a cell's recipe has beyond that of its row."""
        if cell.trained.language == MANY:
            return {"data": self._many_tables()}
        tables = {"train": f"{cell.language}_train.tsv", "valid": f"{cell.language}_dev.tsv"}
        data: dict[str, Any] = {split: {"table": name} for split, name in tables.items()}
        if size_of(cell.language) != "low" or cell.row in OF_FEW_WORDS:
            return {"data": data}
        return merge({"data": data}, _for_few_words(self._row_values(cell)))

    def _many_tables(self) -> dict[str, Any]:
        """The tables of a run for many languages, where they lie in the data folder."""
        found: dict[str, Any] = {}
        for split, table in (("train", "train"), ("valid", "dev")):
            paths = [self.table(language, table) for language in TOGETHER]
            names = [path.relative_to(self.settings.data).as_posix() for path in paths if path is not None]
            found[split] = {"table": names, "tags": list(TOGETHER)}
        return found

    def _row_values(self, cell: SoundCell) -> dict[str, Any]:
        return apply_settings(read_recipe(find_recipe(cell.recipe)), self.settings.changes)

    def recipe(self, cell: SoundCell) -> Recipe:
        """What a cell is trained by."""
        if cell.trained.language == MANY:
            folder = self.settings.data
        else:
            found = self.table(cell.language, "train")
            folder = "." if found is None else str(found.parent)
        values = merge(merge(self._row_values(cell), self.changes(cell)), {"data": {"folder": folder}})
        return build_recipe(merge(values, {"seed": cell.seed}), place=cell.recipe)

    def fingerprint(self, cell: SoundCell) -> str:
        """The same for cells by the same recipe; an ensemble's is that of its members."""
        if cell.members:
            return fingerprint_of({"members": [self.fingerprint(one) for one in cell.members]})
        return fingerprint_of(recipe_values(self.recipe(cell)))

    def folder(self, cell: SoundCell) -> Path:
        return self.runs / cell.language / f"{cell.row}-s{cell.seed}"

    def recall(self, cell: SoundCell) -> dict[str, Any] | None:
        """The row of a cell that is trained and measured by this very recipe, here or in adopted results."""
        known = self.recall_here(cell)
        return self._adopt(cell) if known is None else known

    def _adopt(self, cell: SoundCell) -> dict[str, Any] | None:
        return next((row for results in self._adopted for row in self._rows_in(results, cell)), None)

    def _rows_in(self, results: AdoptedResults, cell: SoundCell) -> list[dict[str, Any]]:
        wanted = {**asdict(cell), "beam": self.settings.beam}
        if not cell.members:
            return results.rows(self.recipe(cell), **wanted)
        if not all(self._rows_in(results, one) for one in cell.members):
            return []  # an ensemble's recipe is those of its members
        named = results.entries("rows", **wanted, members=[one.name for one in cell.members])
        return [{**row, "fingerprint": self.fingerprint(cell)} for row in named]

    def recall_here(self, cell: SoundCell) -> dict[str, Any] | None:
        """The row of a cell whose run is on this machine."""
        try:
            found: dict[str, Any] = json.loads((self.folder(cell) / "row.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if found["beam"] != self.settings.beam or not self._is_of_today(cell, found):
            return None
        return {**found, "fingerprint": self.fingerprint(cell)}

    def _is_of_today(self, cell: SoundCell, row: dict[str, Any]) -> bool:
        """Whether the run behind a row was trained by today's recipe; settings new since then have their defaults."""
        if cell.members:
            names = [one.name for one in cell.members]
            return row["members"] == names and all(self.recall_here(one) for one in cell.members)
        return self._is_by_its_recipe(cell.trained)

    def _is_by_its_recipe(self, cell: SoundCell) -> bool:
        folder = self.folder(cell)
        if not (folder / CONFIG).is_file():
            return False
        return recipe_values(load_config(folder)) == recipe_values(self.recipe(cell))

    def outputs(self, cell: SoundCell, split: str) -> Path:
        """What the run wrote for the words of a split, a line each."""
        return self.folder(cell) / f"{split}.phones"

    def work(self, cell: SoundCell, *, echo: bool = True) -> dict[str, Any]:
        """Train a cell to its end, or go on with it, and measure it."""
        if (known := self.recall_here(cell)) is not None:
            return known
        if cell.members:
            row = self._measure_together(cell)
        else:
            if cell.trained == cell:
                self._train(cell, echo=echo)
            row = self._measure(cell, load(self.folder(cell.trained), device="cpu"))
        self.folder(cell).mkdir(parents=True, exist_ok=True)
        write_atomic(self.folder(cell) / "row.json", to_json(row, indent=1) + "\n")
        # most of the disk, and no longer needed
        shutil.rmtree(self.folder(cell) / "checkpoints", ignore_errors=True)
        return row

    def _train(self, cell: SoundCell, *, echo: bool) -> None:
        recipe, folder = self.recipe(cell), self.folder(cell)
        begun = (folder / CONFIG).is_file()
        if begun and not self._is_by_its_recipe(cell):
            raise UserError(f"{folder}: holds a run by another recipe; choose another --runs, or remove it")
        if not begun or list_checkpoints(folder):
            train(recipe, folder, resume=begun, echo=echo)

    def _measure_together(self, cell: SoundCell) -> dict[str, Any]:
        """The row of an ensemble of cells that are trained."""
        members = [self.folder(one.trained) for one in cell.members]
        together = Ensemble(tuple(load(folder, device="cpu") for folder in members))
        row: dict[str, Any] = {
            "language": cell.language,
            "size": size_of(cell.language),
            "row": cell.row,
            "seed": cell.seed,
            "members": [one.name for one in cell.members],
            "revision": git_revision(),
            "fingerprint": self.fingerprint(cell),
            "beam": self.settings.beam,
        }
        for split in SPLITS:
            if (path := self.table(cell.language, split)) is not None:
                found = together.evaluate(errors=True, beam=self.settings.beam, **_words(cell, path))
                rates = {key: value for key, value in found.items() if key == "nll" or "error" in key}
                row |= {
                    key if split == "dev" else f"test_{key}": value for key, value in _rounded(rates).items()
                }
        return row

    def _measure(self, cell: SoundCell, run: Run) -> dict[str, Any]:
        records = read_metrics(run.folder / "metrics.jsonl")
        row: dict[str, Any] = {
            "language": cell.language,
            "size": size_of(cell.language),
            "row": cell.row,
            "seed": cell.seed,
            "recipe": cell.recipe,
            "settings": list(self.settings.changes),
            "changes": self.changes(cell),
            "version": latentalign.__version__,
            "revision": revision_of_run(run.folder),
            "fingerprint": fingerprint_of(recipe_values(run.config)),
            "minutes": round(records[-1]["training_seconds"] / 60, 2),
            "epochs": records[-1]["epoch"],
            "best_epoch": epoch_of_weights(records),
            "beam": self.settings.beam,
        }
        for split in SPLITS:
            if (path := self.table(cell.language, split)) is not None:
                found = self._measure_on(_words(cell, path), run, self.outputs(cell, split))
                row |= found if split == "dev" else {f"test_{key}": value for key, value in found.items()}
        return row

    def _measure_on(self, words: dict[str, Any], run: Run, outputs: Path) -> dict[str, Any]:
        found = run.evaluate(**words)
        pairs = words_of(**words)
        texts = search(run, [word for word, _ in pairs], beam=self.settings.beam)
        write_atomic(outputs, "".join(f"{text}\n" for text in texts))
        keys = ("nll", "prior_entropy", "elbo", "kl")
        trained = any(phase.needs_posterior and phase.trains_phi for phase in run.schedule.reached)
        values = {key: round(found[key], 5) for key in keys if key in found and (trained or key in keys[:2])}
        if "elbo" in values:
            values["gap"] = round(-found["elbo"] - found["nll"], 5)  # what the bound misses, in nats a phone
        return {
            **values,
            "inference": found["inference"],
            "sharpness": round(sharpness(run, pairs), 4),
            **_rounded(error_rates(texts, [phones for _, phones in pairs])),
        }


def _for_few_words(values: dict[str, Any]) -> dict[str, Any]:
    """More and smaller updates: what a recipe for 8,000 words lacks for 800."""
    times, training = FEW_WORDS["epochs"], build_recipe(values).training
    longer: dict[str, Any] = {"epochs": times * (training.epochs or 1.0)}
    if training.early_stopping.patience is not None:
        longer["early_stopping"] = {"patience": times * training.early_stopping.patience}
    changes: dict[str, Any] = {"data": {"batch_size": FEW_WORDS["batch_size"]}, "training": longer}
    if schedule := values.get("schedule"):
        changes["schedule"] = [
            {**phase, "epochs": times * phase["epochs"]} if "epochs" in phase else phase for phase in schedule
        ]
    return changes


def _words(cell: SoundCell, table: Path) -> dict[str, Any]:
    """What a cell is measured on."""
    return {"table": table} if cell.tag is None else {"table": table, "tag": cell.tag}


def words_of(table: Path, tag: str | None = None) -> list[Pair]:
    """The words of a table with their phones."""
    return list(read_pairs(PairsToEvaluate(table=table, tag=tag).files))


def search(run: Any, words: list[str], *, beam: int) -> list[str]:
    """The likeliest phones of every word."""
    translator = run.translator(beam=beam, length_penalty=0.0, eos_penalty=0.0)
    return [found[0].text for found in translator.translate(words)]


def sharpness(run: Run, pairs: list[Pair]) -> float:
    """The mean probability of a phone's best letter, by the exact posterior given the whole word."""
    best = [found.probs("exact").max(axis=1) for found in run.aligner().align(pairs, exact=True)]
    return float(np.concatenate(best).mean())


def _rounded(rates: dict[str, Any]) -> dict[str, Any]:
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in rates.items()}
