"""The page of a grid, whole or not: tables, statements, pictures, and what is missing."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from latentalign.files import write_atomic
from latentalign.reports.paper.results_files import write_json
from latentalign.reports.paper.table import (
    NOTHING,
    Column,
    Table,
    html_page,
    mean_column,
    name_column,
    summarise,
)
from latentalign.reports.provenance import recipe_values, write_recipes
from latentalign.reports.sounds.grid import SoundGrid
from latentalign.reports.sounds.pictures import draw_words
from latentalign.reports.sounds.rows import ENSEMBLES, PUBLISHED, ROWS, SoundCell, size_of
from latentalign.reports.sounds.statements import by_language, check_statements
from latentalign.training.run.environment import git_revision

MEASURES = (
    "nll",
    "word_error",
    "phone_error",
    "prior_entropy",
    "sharpness",
    "gap",
    "kl",
    "minutes",
    "epochs",
)
NOTES = "notes.md"  # written by hand; the page takes it in as it is


def write_results(grid: SoundGrid, cells: Sequence[SoundCell], out: Path) -> dict[str, Any]:
    """Write g2p.json, g2p.html, README.md and the pictures of what is done; the content comes back."""
    found = {cell: grid.recall(cell) for cell in cells}
    rows = [row for row in found.values() if row is not None]
    content: dict[str, Any] = {
        "table": "g2p",
        "task": "translation",
        "revision": git_revision(),
        "rows": rows,
        "summary": summarise(rows, ("size", "row"), MEASURES),
        "statements": check_statements(rows),
        "published": {language: PUBLISHED[language] for language in dict.fromkeys(c.language for c in cells)},
        "missing": [cell.name for cell, row in found.items() if row is None],
    }
    out.mkdir(parents=True, exist_ok=True)
    pictures = draw_words(grid, [cell for cell, row in found.items() if row is not None], out)
    trained = [cell for cell, row in found.items() if row is not None and not cell.members]
    write_recipes(out, [recipe_values(grid.recipe(cell)) for cell in trained])
    write_json(out / "g2p.json", content)
    tables = [*_tables(rows, content), _statements(content)]
    write_atomic(out / "README.md", _page(content, tables, pictures, out))
    write_atomic(out / "g2p.html", html_page("Letters to sounds", tables, pictures))
    return content


def _tables(rows: Sequence[Mapping[str, Any]], content: Mapping[str, Any]) -> list[Table]:
    summary = content["summary"]
    columns = (
        name_column("words", "size"),
        name_column("objective", "row"),
        Column("runs", lambda row: str(len(row["seeds"]))),
        mean_column("NLL", "nll", 4),
        mean_column("word error", "word_error"),
        mean_column("phone error", "phone_error"),
        mean_column("prior entropy", "prior_entropy", 3),
        mean_column("sharpness", "sharpness", 3),
        mean_column("bound's gap", "gap", 4),
        mean_column("KL", "kl", 3),
        mean_column("minutes", "minutes", 1),
    )
    notes = (
        "Development sets; means over all runs of a row, ± the deviation over languages and seeds. Rows that lack "
        "languages cannot be compared by these means: see the languages below and the paired statements.",
        "Sharpness: the mean probability of a phone's best letter, by the exact posterior. Gap: how far the bound lies "
        "below the log-likelihood, in nats a phone.",
    )
    means = Table("All runs", columns, tuple(summary), notes)
    return [
        means,
        _seeds(rows),
        _languages(rows, "word_error", "Word error on development words, by language", 0, 2),
        _languages(rows, "nll", "NLL on development words, by language", None, 4),
        _languages(rows, "test_word_error", "Word error on test words, where they are at hand", 1, 2),
    ]


def _seeds(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Means over the languages of every seed: rows of one seed are compared with each other."""
    columns = (
        name_column("words", "size"),
        name_column("objective", "row"),
        Column("seed", lambda row: str(row["seed"])),
        Column("languages", lambda row: str(len(row["seeds"]))),
        mean_column("NLL", "nll", 4),
        mean_column("word error", "word_error"),
    )
    found = summarise(rows, ("size", "row", "seed"), ("nll", "word_error"))
    return Table("Means over languages, seed by seed", columns, tuple(found))


def _languages(
    rows: Sequence[Mapping[str, Any]], measure: str, caption: str, published: int | None, digits: int
) -> Table:
    """Languages down, rows across, means over seeds; a last line of means for each size of languages."""
    present = [
        name for name in (*ROWS, *ENSEMBLES) if any(row["row"] == name and measure in row for row in rows)
    ]
    values = {name: by_language(rows, name, measure) for name in present}
    languages = [one for one in PUBLISHED if any(one in found for found in values.values())]
    lines: list[dict[str, Any]] = []
    for language in languages:
        line: dict[str, Any] = {name: values[name].get(language) for name in present}
        line |= {"language": language, "size": size_of(language)}
        if published is not None:
            line["published"] = PUBLISHED[language][published]
        lines.append(line)
    keys = [*present, *(["published"] if published is not None else [])]
    for size in dict.fromkeys(line["size"] for line in lines):
        compared = _compared([{one for one in found if size_of(one) == size} for found in values.values()])
        whole = [line for line in lines if line["language"] in compared]
        mean = {
            key: sum(line[key] for line in whole) / len(whole)
            for key in keys
            if all(line[key] is not None for line in whole)
        }
        lines.append({**mean, "language": f"mean of {len(whole)}", "size": size})
    columns = [name_column("language", "language"), name_column("words", "size")]
    columns += [_number(key, digits) for key in keys]
    return Table(caption, tuple(columns), tuple(lines))


def _compared(have: Sequence[set[str]]) -> set[str]:
    """The languages to take means over: many, of many rows. A row that lacks one of them has no mean."""
    return max(have, key=lambda languages: len(languages) * sum(languages <= other for other in have))


def _number(key: str, digits: int) -> Column:
    return Column(key, lambda row: NOTHING if row.get(key) is None else f"{row[key]:.{digits}f}")


def _statements(content: Mapping[str, Any]) -> Table:
    def interval(row: Mapping[str, Any]) -> str:
        return NOTHING if row["interval"] is None else "[{:.4f}, {:.4f}]".format(*row["interval"])

    columns = (
        name_column("words", "size"),
        name_column("statement", "statement"),
        Column("languages", lambda row: str(row["languages"])),
        Column("holds in", lambda row: str(row["holds_in"])),
        Column("sign test p", lambda row: f"{row['p']:.3f}"),
        Column("mean difference", lambda row: f"{row['difference']:.4f}"),
        Column("95 % interval", interval),
        name_column("verdict", "verdict"),
    )
    notes = (
        "Each language is one paired observation, the mean over the seeds that both rows have. An ensemble is paired "
        "with the runs of its own seed.",
    )
    return Table(
        "Statements about order, tested over languages", columns, tuple(content["statements"]), notes
    )


def _missing(content: Mapping[str, Any]) -> str:
    """How many runs of every row are not done; their names are in the JSON."""
    names = [name.split("-", 1)[1].rsplit("-s", 1)[0] for name in content["missing"]]
    done = [row["row"] for row in content["rows"]]
    rows = dict.fromkeys(names)
    return ", ".join(f"{row} {names.count(row)} of {names.count(row) + done.count(row)}" for row in rows)


def _page(content: Mapping[str, Any], tables: Sequence[Table], pictures: Sequence[str], out: Path) -> str:
    done, missing = len(content["rows"]), content["missing"]
    revisions = sorted({str(row["revision"])[:10] for row in content["rows"]})
    lines = [
        "# Letters to sounds\n",
        "Written by `latentalign reproduce g2p`; every number is in `g2p.json` beside this page, with recipe and "
        f"revision of each run ({', '.join(revisions) or 'none yet'}).\n",
        f"{done} of {done + len(missing)} runs are done."
        + (
            f" Missing, of each objective over all languages and seeds: {_missing(content)}.\n"
            if missing
            else "\n"
        ),
    ]
    if (notes := out / NOTES).is_file():
        lines += ["## What we make of it\n", notes.read_text(encoding="utf-8").strip() + "\n"]
    lines += [table.markdown() for table in tables if table.rows]
    lines += [f"![Letters against phones]({picture})\n" for picture in pictures]
    return "\n".join(lines)
