"""Rows as tables: means over seeds, Markdown and HTML, published figures beside ours."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from latentalign.reports.html_pages import render_page

Row = Mapping[str, Any]
NOTHING = "–"


@dataclass(frozen=True)
class Column:
    """A column of a table: its head, and its text for a row. Numbers are aligned right."""

    head: str
    text: Callable[[Row], str]
    is_number: bool = True
    is_strong: Callable[[Row], bool] = lambda row: False  # which cells to point out

    def markdown(self, row: Row) -> str:
        """The cell of a row."""
        text = self.text(row).replace("|", "\\|")
        return f"**{text}**" if self.is_strong(row) else text


@dataclass(frozen=True)
class Table:
    """Rows of text with a caption, ready to be written."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def markdown(self) -> str:
        """As Markdown, caption first."""
        heads = [column.head.replace("|", "\\|") for column in self.columns]
        marks = ["--:" if column.is_number else ":--" for column in self.columns]
        cells = [[column.markdown(row) for column in self.columns] for row in self.rows]
        lines = [_line(heads), _line(marks), *map(_line, cells)]
        notes = "".join(f"\n{note}\n" for note in self.notes)
        return f"**{self.caption}**\n\n" + "\n".join(lines) + "\n" + notes


def html_page(title: str, tables: Sequence[Table], pictures: Sequence[str] = ()) -> str:
    """A page of its own with tables and pictures (file names beside the page)."""
    return render_page("study", title=title, tables=tables, pictures=pictures)


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
