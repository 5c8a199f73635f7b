"""The page of a results folder, put together from the studies that are there and from what people wrote."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from latentalign.files import write_atomic
from latentalign.reports.paper.table_layouts import LAYOUTS, Layout

NOTES = "notes.md"  # written by hand; the page takes it in as it is
_TITLES = {
    "table1": "Every objective",
    "table2": "Fewer positions at test time",
    "table3": "Ways to train the variational model",
    "figure3": "Alignments",
    "gradients": "Gradients and bounds",
}


def write_page(folder: Path, layouts: Mapping[str, Layout] = LAYOUTS) -> None:
    """Write README.md anew from the JSON of every study in the folder; `layouts` are the task's."""
    found = {name: _read(folder / f"{name}.json") for name in _TITLES}
    present = {name: content for name, content in found.items() if content is not None}
    recipes = ", ".join(sorted({f"`{content['recipe']}`" for content in present.values()}))
    sections = [
        f"# The paper's tables again: {folder.resolve().name}\n",
        f"Written by `latentalign reproduce` (recipe {recipes}); every number is in the JSON files beside this page, "
        "with the recipe's changes for each row.\n",
        _verdicts(present),
    ]
    notes = folder / NOTES
    if notes.is_file():
        sections += ["## What we make of it\n", notes.read_text(encoding="utf-8").strip() + "\n"]
    else:
        sections.append(f"<!-- {NOTES} beside this page is included here when it exists -->\n")
    for name, content in present.items():
        tables = "\n".join(table.markdown() for table in layouts[name](content))
        sections += [f"## {_TITLES[name]}\n", tables, _pictures(content, name)]
    write_atomic(folder / "README.md", "\n".join(section for section in sections if section))


def _read(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _verdicts(present: Mapping[str, Mapping[str, Any]]) -> str:
    claims = [claim for content in present.values() for claim in content.get("claims", [])]
    judged = [claim for claim in claims if claim["agrees"] is not None]
    if not judged:
        return ""
    against = [claim for claim in judged if not claim["agrees"]]
    held = len(judged) - len(against)
    text = f"Of {len(judged)} statements about order that the paper's tables make, {held} hold here"
    return text + ("; not:\n\n" + _listed(against) if against else ".\n")


def _listed(claims: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for claim in claims:
        left, right = (f"{value:.2f}" for value in claim["ours"])
        doubt = ", within what seeds differ by" if claim["clear"] is False else ""
        lines.append(f"- {claim['claim']} (here {left} and {right}{doubt})")
    return "\n".join(lines) + "\n"


def _pictures(content: Mapping[str, Any], name: str) -> str:
    if name == "table2":
        return "![Perplexity against K](table2-curve.png)\n"
    if content.get("history"):
        return f"![Likelihood and bound over updates]({name}-curves.png)\n"
    rows = content["rows"] if name == "figure3" else []
    return "".join(f"![{row['contrast']}, rank {row['rank']}]({row['picture']})\n\n" for row in rows)
