"""The VQA columns of the paper's first table: its own rows, and rows trained by phases."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from latentalign.reports.grid.cells import Cell
from latentalign.reports.grid.grid import Grid
from latentalign.reports.grid.phase_plan import RowSpec
from latentalign.reports.grid.study import Parts, Study
from latentalign.reports.paper.claims import order_claims
from latentalign.reports.paper.published import published
from latentalign.reports.paper.results_files import write_study
from latentalign.reports.paper.results_page import write_page
from latentalign.reports.paper.table import Table, mean_column, name_column, published_column, summarise
from latentalign.reports.paper.table_layouts import Content, Layout, claims_table
from latentalign.reports.paper.translation_measures import describe
from latentalign.training.trained_run import load

__all__ = ["SPECS", "STUDIES"]

_SHARES = ("score", "prior_gold", "posterior_gold", "inference_gold")
_MEASURES = ("nll", *_SHARES, "score_official", "prior_entropy", "minutes")


# the paper's rows train by one objective from the first step; q is then untrained while θ already follows it
WARMUP = {"objective": "soft", "epochs": 8.0}
INFERENCE = {"objective": "wake", "epochs": 12.0}  # with 8, one sample was behind soft on validation


def _estimated(objective: str, name: str, estimator: str, *, needs_posterior: bool) -> RowSpec:
    chosen = {"name": objective, "estimator": estimator}
    return RowSpec(
        f"{objective}-{name}",
        objective,
        estimator,
        chosen,
        needs_posterior=needs_posterior,
        labels={"phases": "none"},
        is_principal=True,
    )


def _from_prior(name: str, estimator: str) -> RowSpec:
    """Soft attention first, then `wake` for q beside the exact likelihood, then the bound; q ∝ p · exp(score)."""
    return replace(
        _estimated("variational", name, estimator, needs_posterior=True),
        name=f"{name}-from-prior",
        before=(WARMUP, INFERENCE),
        model={"posterior_from_prior": True},
        labels={"phases": "soft, wake, q from p"},
    )


_ROWS = (
    RowSpec("soft", "soft", "-", "soft", labels={"phases": "none"}, is_principal=True),
    RowSpec("marginal", "marginal", "enumerate", "marginal", labels={"phases": "none"}, is_principal=True),
    *(
        _estimated(objective, name, estimator, needs_posterior=needs_posterior)
        for objective, needs_posterior in (("hard", False), ("variational", True))
        for name, estimator in (("enumerate", "enumerate"), ("sample", "reinforce"))
    ),
    RowSpec(
        "marginal-after-soft",
        "marginal",
        "enumerate",
        "marginal",
        before=(WARMUP,),
        labels={"phases": "soft"},
        is_principal=True,
    ),
    _from_prior("enumerate", "enumerate"),
    _from_prior("sample", "reinforce"),
)
SPECS: dict[str, RowSpec] = {spec.name: spec for spec in _ROWS}


def _rows(grid: Grid, cell: Cell, folder: Path) -> Parts:
    """A row measured on the test half, by the prediction that belongs to its objective."""
    about = describe(grid, cell, folder)
    found = load(folder).evaluate(split="test", data=Path(grid.settings.test["data"]))
    row = {
        **about,
        "inference": found["inference"],
        "nll": round(found["nll"], 4),
        **{name: round(found[name], 2) for name in _SHARES if name in found},
        "score_official": round(found["score_official"], 2),
        "prior_entropy": round(found["prior_entropy"], 3),
        "by_type": {key[6:-1]: round(value, 2) for key, value in found.items() if key.startswith("score[")},
        "published": published("vqa", cell.spec.name),
    }
    return {"rows": [row]}


def _finish(grid: Grid, parts: Parts, out: Path) -> dict[str, Any]:
    summary = summarise(parts["rows"], ("row", "objective", "estimator", "phases", "inference"), _MEASURES)
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
    write_study(grid, content, _tables(content), out)
    write_page(out, LAYOUTS)
    return content


def _tables(content: Content) -> list[Table]:
    columns = (
        name_column("objective", "objective"), name_column("estimator", "estimator"),
        name_column("phases before", "phases"), name_column("inference", "inference"),
        mean_column("NLL", "nll", 3), mean_column("score", "score", 1),
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


LAYOUTS: dict[str, Layout] = {"table1": _tables}
STUDIES: dict[str, Study] = {"table1": Study("table1", tuple(SPECS), _rows, _finish)}
