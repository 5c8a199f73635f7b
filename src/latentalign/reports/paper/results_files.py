"""The files of a study: JSON with every number, Markdown and HTML with the tables."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from latentalign.files import write_atomic
from latentalign.reports.paper.table import Table, html_page


def write_study(
    content: Mapping[str, Any], tables: Sequence[Table], out: Path, *, pictures: Sequence[str] = ()
) -> None:
    """Write NAME.json, NAME.md and NAME.html of a study into the folder `out`."""
    name = content["table"]
    write_json(out / f"{name}.json", content)
    write_atomic(out / f"{name}.md", "\n".join(table.markdown() for table in tables))
    write_atomic(out / f"{name}.html", html_page(tables[0].caption, tables, pictures))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """A study's JSON, one row a line: small differences stay small in version control."""
    lines = []
    for key, value in content.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            inner = ",\n  ".join(json.dumps(item, ensure_ascii=False) for item in value)
            lines.append(f" {json.dumps(key)}: [\n  {inner}\n ]")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
    write_atomic(path, "{\n" + ",\n".join(lines) + "\n}\n")
