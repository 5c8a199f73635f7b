"""The VQA columns of the paper's first table."""

from pathlib import Path
from typing import Any

from latentalign.files import write_atomic
from latentalign.reports.cells import Cell, Spec
from latentalign.reports.claims import order_claims
from latentalign.reports.grid import Grid
from latentalign.reports.layout import claims_table
from latentalign.reports.measures import describe
from latentalign.reports.paper import published
from latentalign.reports.study import Parts, Study, write_json
from latentalign.reports.tables import Table, html_page, mean_column, name_column, published_column, summarise
from latentalign.reports.vqa_table import PUBLISHED, row
from latentalign.reports.vqa_table import Cell as VqaCell
from latentalign.training.runs import load_run

__all__ = ["SPECS", "STUDIES"]

_SUFFIX = {"-": "", "enumerate": "-enumerate", "reinforce": "-sample"}
_MEASURES = (
    "nll", "score", "score_official", "prior_entropy", "prior_gold", "posterior_gold", "inference_gold", "minutes",
)  # fmt: skip


def _spec(objective: str, estimator: str) -> Spec:
    chosen: Any = objective
    if objective in ("hard", "variational"):
        chosen = {"name": objective, "estimator": estimator}
    name = objective if objective == "marginal" else f"{objective}{_SUFFIX[estimator]}"
    return Spec(
        name, objective, estimator, chosen, needs_posterior=objective == "variational", is_principal=True
    )


SPECS: dict[str, Spec] = {spec.name: spec for spec in (_spec(*names) for names in PUBLISHED)}


def _rows(grid: Grid, cell: Cell, folder: Path) -> Parts:
    about = describe(grid, cell, folder)
    named = VqaCell(cell.spec.objective, cell.spec.estimator, cell.seed)
    found = row(load_run(folder), named, data=Path(grid.settings.test["data"]), minutes=about["minutes"])
    return {"rows": [{**about, **found, "published": published("vqa", cell.spec.name)}]}


def _finish(grid: Grid, parts: Parts, out: Path) -> dict[str, Any]:
    summary = summarise(parts["rows"], ("row", "objective", "estimator", "inference"), _MEASURES)
    for group in summary:
        group["published"] = published("vqa", group["row"])
    content: dict[str, Any] = {
        "table": "table1",
        "task": "vqa",
        "recipe": grid.settings.recipe_name,
        "published_corpus": "VQA 2.0",
        "rows": parts["rows"],
        "summary": summary,
        "claims": order_claims("vqa", "table1", summary),
    }
    tables = _tables(content)
    write_json(out / "table1.json", content)
    write_atomic(out / "table1.md", "\n".join(table.markdown() for table in tables))
    write_atomic(out / "table1.html", html_page(tables[0].caption, tables))
    return content


def _tables(content: dict[str, Any]) -> list[Table]:
    columns = (
        name_column("objective", "objective"), name_column("estimator", "estimator"),
        name_column("inference", "inference"), mean_column("NLL", "nll", 3), mean_column("score", "score", 1),
        mean_column("prior entropy", "prior_entropy"), mean_column("prior gold", "prior_gold", 1),
        mean_column("posterior gold", "posterior_gold", 1), mean_column("network gold", "inference_gold", 1),
        mean_column("minutes", "minutes", 1), name_column("seeds", "seeds"),
        published_column("paper: NLL", "nll"), published_column("paper: score", "score"),
        published_column("paper: entropy", "prior_entropy"),
    )  # fmt: skip
    notes = (
        "Gold: how often the likeliest region shows the answer, in per cent, by the prior, by the exact posterior "
        "p(z | x, y) and by the inference network. On the right the paper's figures for VQA 2.0.",
    )
    caption = "Table 1, VQA. Test half, mean ± deviation over seeds"
    return [Table(caption, columns, tuple(content["summary"]), notes), claims_table(content["claims"])]


STUDIES: dict[str, Study] = {"table1": Study("table1", tuple(SPECS), _rows, _finish)}
