"""Rows as tables: means over seeds, Markdown and HTML, published figures beside ours."""

import html
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]
NOTHING = "–"


@dataclass(frozen=True)
class Column:
    """A column of a table: its head, and its text for a row. Numbers stand on the right."""

    head: str
    text: Callable[[Row], str]
    is_number: bool = True


@dataclass(frozen=True)
class Table:
    """Rows of text with a caption, ready to be written."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def _cells(self) -> list[list[str]]:
        return [[column.text(row) for column in self.columns] for row in self.rows]

    def markdown(self) -> str:
        """As Markdown, caption first."""
        heads = [column.head for column in self.columns]
        marks = ["--:" if column.is_number else ":--" for column in self.columns]
        lines = [_line(heads), _line(marks), *(_line(_escaped(cells)) for cells in self._cells())]
        notes = "".join(f"\n{note}\n" for note in self.notes)
        return f"**{self.caption}**\n\n" + "\n".join(lines) + "\n" + notes

    def html(self) -> str:
        """As an HTML table."""
        heads = "".join(f"<th>{html.escape(column.head)}</th>" for column in self.columns)
        body = []
        for cells in self._cells():
            kinds = ("number" if column.is_number else "name" for column in self.columns)
            body.append(
                "".join(
                    f'<td class="{kind}">{html.escape(cell)}</td>'
                    for kind, cell in zip(kinds, cells, strict=True)
                )
            )
        rows = "\n".join(f"<tr>{cells}</tr>" for cells in body)
        notes = "".join(f"<p>{html.escape(note)}</p>\n" for note in self.notes)
        caption = html.escape(self.caption)
        return (
            f"<table>\n<caption>{caption}</caption>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n"
            f"</table>\n{notes}"
        )


_STYLE = """
body { font: 16px/1.45 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1.5rem 0; }
caption { text-align: left; font-weight: 600; padding-bottom: .5rem; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid #8884; text-align: left; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
img { max-width: 100%; }
@media (prefers-color-scheme: dark) { body { background: #181a1b; color: #e8e6e3; } img { background: #fff; } }
"""


def html_page(title: str, tables: Iterable[Table], pictures: Sequence[str] = ()) -> str:
    """A page of its own with tables and pictures (file names beside the page)."""
    images = "".join(
        f'<p><img src="{html.escape(name)}" alt="{html.escape(name)}"></p>\n' for name in pictures
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width">\n<title>{html.escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{html.escape(title)}</h1>\n"
        + "".join(table.html() for table in tables)
        + images
        + "</body>\n</html>\n"
    )


def summarise(rows: Iterable[Row], keys: Sequence[str], measures: Sequence[str]) -> list[dict[str, Any]]:
    """Rows that differ by their seed only, as one: the mean of every measure and its deviation over seeds."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    summary = []
    for values, group in groups.items():
        found: dict[str, Any] = dict(zip(keys, values, strict=True))
        found["seeds"] = sorted(row["seed"] for row in group)
        for measure in measures:
            numbers = [row[measure] for row in group if isinstance(row.get(measure), int | float)]
            if numbers:
                found[measure] = round(statistics.fmean(numbers), 4)
            if len(numbers) > 1:
                found[f"{measure}_deviation"] = round(statistics.stdev(numbers), 4)
        summary.append(found)
    return summary


def mean_column(head: str, measure: str, digits: int = 2) -> Column:
    """A measure of a summary, with its deviation where there are several seeds."""

    def text(row: Row) -> str:
        if measure not in row:
            return NOTHING
        deviation = row.get(f"{measure}_deviation")
        spread = "" if deviation is None else f" ± {deviation:.{digits}f}"
        return f"{row[measure]:.{digits}f}{spread}"

    return Column(head, text)


def published_column(head: str, measure: str, digits: int = 2) -> Column:
    """A published figure, kept in a summary's `published`."""

    def text(row: Row) -> str:
        value = row.get("published", {}).get(measure)
        return NOTHING if value is None else f"{value:.{digits}f}"

    return Column(head, text)


def name_column(head: str, key: str) -> Column:
    """A word of a summary."""

    def text(row: Row) -> str:
        value = row.get(key)
        if isinstance(value, list):
            return ", ".join(map(str, value))
        return NOTHING if value in (None, "none") else str(value)

    return Column(head, text, is_number=False)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _escaped(cells: Iterable[str]) -> list[str]:
    return [cell.replace("|", "\\|") for cell in cells]
