"""The paper's tables and figures for translation: how each is measured and written."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from latentalign.errors import UserError
from latentalign.files import read_lines
from latentalign.reports.figures.heatmap import save
from latentalign.reports.figures.kmax_curve import k_curve, references_of
from latentalign.reports.figures.training_curves import bound_curves
from latentalign.reports.grid.cells import Cell
from latentalign.reports.grid.grid import Grid
from latentalign.reports.grid.step_cost import cost_of_run
from latentalign.reports.grid.study import Parts, Study
from latentalign.reports.paper.claims import kmax_claims, mean_points, order_claims
from latentalign.reports.paper.figure3 import RULE, draw_figure3
from latentalign.reports.paper.gradient_quality import REPEATS, bound_tightness, gradient_quality
from latentalign.reports.paper.overtaking import history_of, overtakings, runs_in
from latentalign.reports.paper.published import published
from latentalign.reports.paper.results_files import write_study
from latentalign.reports.paper.results_page import write_page
from latentalign.reports.paper.significance import paired_bootstrap
from latentalign.reports.paper.table import summarise
from latentalign.reports.paper.table_layouts import LAYOUTS
from latentalign.reports.paper.translation_measures import Measured, describe, hypotheses_path
from latentalign.reports.paper.translation_rows import SPECS, TABLE1, TABLE2, TABLE3
from latentalign.training.trained_run import load

__all__ = ["SPECS", "STUDIES"]

KEYS = ("row", "objective", "estimator", "samples", "baseline", "alignment", "posterior", "inference")
MEASURES = (
    "ppl", "bleu", "prior_entropy", "nll", "chrf", "elbo", "kl", "minutes", "tokens_per_second", "peak_memory_mb",
)  # fmt: skip
PAIRS = 16  # sentence pairs whose gradient is estimated
TIGHTNESS_PAIRS = 200  # sentence pairs over which bounds are averaged
POSTERIOR_ROW = "variational-sample"  # the row whose q is looked at


def _rows(grid: Grid, cell: Cell, folder: Path) -> Parts:
    """Table 1: the model as the paper tests it, and what validation found on the way there."""
    measured = Measured(grid, cell, folder)
    named = {"row": cell.spec.name, "seed": cell.seed}
    return {
        "rows": [_beside_paper(measured.row(measured.inference))],
        "history": [named | point for point in history_of(folder)],
    }


def _rows_by_inference(grid: Grid, cell: Cell, folder: Path) -> Parts:
    """Table 2: as it is tested in table 1, and with K-max 5; the curve over K."""
    measured = Measured(grid, cell, folder)
    rows = [_beside_paper(measured.row(inference)) for inference in (measured.inference, "kmax:5")]
    curve = grid.remember(cell, "curve", measured.curve)["curve"]
    named = {"row": cell.spec.name, "objective": cell.spec.objective, "estimator": cell.spec.estimator}
    return {"rows": rows, "curve": [{**named, "seed": cell.seed, **point} for point in curve]}


def _rows_with_cost(grid: Grid, cell: Cell, folder: Path) -> Parts:
    """Table 3: as table 1, with speed and memory."""
    cost = grid.remember(cell, "cost", lambda: cost_of_run(folder))
    (row,) = _rows(grid, cell, folder)["rows"]
    return {"rows": [row | cost]}


def _trained(grid: Grid, cell: Cell, folder: Path) -> Parts:
    """A figure is drawn from the weights themselves: there is nothing to measure for a single cell."""
    return {"rows": [describe(grid, cell, folder)]}


def _beside_paper(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "published": published("translation", row["row"], row["inference"])}


def _finish_table(grid: Grid, parts: Parts, out: Path, name: str) -> dict[str, Any]:
    rows = parts["rows"]
    summary = summarise(rows, KEYS, MEASURES)
    for group in summary:
        group["published"] = published("translation", group["row"], group["inference"])
    content: dict[str, Any] = {
        "table": name,
        "task": "translation",
        "recipe": grid.settings.recipe_name,
        "published_corpus": "IWSLT-14 German to English",
        "rows": rows,
        "summary": summary,
        "claims": order_claims("translation", name, summary),
    }
    pictures: list[str] = []
    if name == "table2":
        points = mean_points(parts.get("curve", []))
        save(k_curve(points, references=references_of(rows)), out / "table2-curve.png")
        pictures.append("table2-curve.png")
        content |= {"curve": parts.get("curve", []), "claims": kmax_claims(parts.get("curve", []))}
    else:
        content["significance"] = [*parts.get("significance", []), *_significance(grid, rows)]
    if history := parts.get("history"):
        content |= {"overtakings": overtakings(history), "history": history}
        runs = {f"{row}, seed {seed}": points for (row, seed), points in runs_in(history).items()}
        save(bound_curves(runs), out / f"{name}-curves.png")
        pictures.append(f"{name}-curves.png")
    _write(grid, content, out, pictures)
    return content


def _write(grid: Grid, content: Mapping[str, Any], out: Path, pictures: Sequence[str] = ()) -> None:
    write_study(grid, content, LAYOUTS[content["table"]](content), out, pictures=pictures)
    write_page(out)


def _significance(grid: Grid, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """BLEU of every row against soft attention of the same seed (without it: against the table's first row).

    Rows of adopted results have no translations here; what was tested there comes with them.
    """
    found = []
    references = list(read_lines(grid.settings.test["target"]))
    for seed in dict.fromkeys(row["seed"] for row in rows):
        texts = {row["row"]: _texts(grid, row) for row in rows if row["seed"] == seed and _is_here(grid, row)}
        soft = grid.cell(f"soft-s{seed}")
        if "soft" not in texts and hypotheses_path(grid, soft, "soft").is_file():
            texts["soft"] = list(read_lines(hypotheses_path(grid, soft, "soft")))
        if not texts:
            continue
        baseline = "soft" if "soft" in texts else next(iter(texts))
        systems = {name: lines for name, lines in texts.items() if name != baseline}
        if systems:
            tests = paired_bootstrap(texts[baseline], systems, references)
            found += [{"seed": seed, "baseline": baseline, **test} for test in tests]
    return found


def _texts(grid: Grid, row: Mapping[str, Any]) -> list[str]:
    return list(read_lines(_hypotheses(grid, row)))


def _is_here(grid: Grid, row: Mapping[str, Any]) -> bool:
    return _hypotheses(grid, row).is_file()


def _hypotheses(grid: Grid, row: Mapping[str, Any]) -> Path:
    return hypotheses_path(grid, grid.cell(f"{row['row']}-s{row['seed']}"), row["inference"])


def _finish_figure3(grid: Grid, parts: Parts, out: Path) -> dict[str, Any]:
    soft, variational = (_first_run(grid, name) for name in ("soft", POSTERIOR_ROW))
    test = grid.settings.test
    rows = draw_figure3(soft, variational, source=Path(test["source"]), target=Path(test["target"]), out=out)
    content = {
        "table": "figure3",
        "task": "translation",
        "recipe": grid.settings.recipe_name,
        "rule": RULE,
        "runs": parts["rows"],
        "rows": rows,
    }
    _write(grid, content, out, [row["picture"] for row in rows])
    return content


def _first_run(grid: Grid, row: str) -> Any:
    folder = grid.find(grid.cell(f"{row}-s{grid.settings.seeds[0]}").recipe)
    if folder is None:
        raise UserError(f"{row}: its run is not there; do not leave it out with --only")
    return load(folder)


def _finish_gradients(grid: Grid, parts: Parts, out: Path) -> dict[str, Any]:
    cell = grid.cell(f"{POSTERIOR_ROW}-s{grid.settings.seeds[0]}")
    recipes = [(warmup.position, warmup.recipe) for warmup in grid.warmups[cell.name]]
    rows: list[dict[str, Any]] = []
    tightness: list[dict[str, Any]] = []
    for epoch, recipe in [*recipes, (None, cell.recipe)]:
        folder = grid.find(recipe)
        if folder is None:
            raise UserError(f"{cell.name}: the run at epoch {epoch} is not there; start the command again")
        run = load(folder)
        point = {"point": f"after {run.schedule.last.name}", "epoch": run.schedule.total, "seed": cell.seed}
        dataset = run.dataset(**grid.settings.test)
        batch = dataset.collate(list(range(min(PAIRS, len(dataset)))))
        rows += [point | row for row in _rounded(gradient_quality(run.model, batch, repeats=REPEATS))]
        pairs = min(TIGHTNESS_PAIRS, len(dataset))
        batches = [dataset.collate(list(range(at, min(at + 20, pairs)))) for at in range(0, pairs, 20)]
        tightness += [point | row for row in _rounded(bound_tightness(run.model, batches))]
    content = {
        "table": "gradients",
        "task": "translation",
        "recipe": grid.settings.recipe_name,
        "pairs": PAIRS,
        "draws": REPEATS,
        "runs": parts["rows"],
        "rows": rows,
        "tightness": tightness,
    }
    _write(grid, content, out)
    return content


def _rounded(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {key: float(f"{value:.5g}") if isinstance(value, float) else value for key, value in row.items()}
        for row in rows
    ]


def _table(name: str, rows: tuple[str, ...], measure: Any) -> Study:
    return Study(name, rows, measure, lambda grid, parts, out: _finish_table(grid, parts, out, name))


STUDIES: dict[str, Study] = {
    "table1": _table("table1", TABLE1, _rows),
    "table2": _table("table2", TABLE2, _rows_by_inference),
    "table3": _table("table3", TABLE3, _rows_with_cost),
    "figure3": Study("figure3", ("soft", POSTERIOR_ROW), _trained, _finish_figure3, needs="runs"),
    "gradients": Study("gradients", (POSTERIOR_ROW,), _trained, _finish_gradients, needs="warmups"),
}
