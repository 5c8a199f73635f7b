"""The files of a study: JSON with every number, Markdown and HTML with the tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from latentalign.files import to_json, write_atomic
from latentalign.reports.grid.grid import Grid
from latentalign.reports.paper.table import Table, html_page
from latentalign.reports.provenance import recipe_values, write_recipes


def write_study(
    grid: Grid,
    content: Mapping[str, Any],
    tables: Sequence[Table],
    out: Path,
    *,
    pictures: Sequence[str] = (),
) -> None:
    """Write NAME.json, NAME.md and NAME.html of a study into the folder `out`, and the recipes of its runs."""
    name = content["table"]
    runs = content.get("runs", content["rows"])
    write_recipes(out, [recipe_values(grid.cell(f"{run['row']}-s{run['seed']}").recipe) for run in runs])
    write_json(out / f"{name}.json", content)
    write_atomic(out / f"{name}.md", "\n".join(table.markdown() for table in tables))
    write_atomic(out / f"{name}.html", html_page(tables[0].caption, tables, pictures))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """A study's JSON, one row a line: small differences stay small in version control."""
    lines = []
    for key, value in content.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            inner = ",\n  ".join(to_json(item) for item in value)
            lines.append(f" {to_json(key)}: [\n  {inner}\n ]")
        else:
            lines.append(f" {to_json(key)}: {to_json(value)}")
    write_atomic(path, "{\n" + ",\n".join(lines) + "\n}\n")
