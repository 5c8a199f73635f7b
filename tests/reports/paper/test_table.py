"""Tables: means over seeds, Markdown and HTML."""

import pytest

from latentalign.reports.paper.table import (
    Column,
    Table,
    html_page,
    mean_column,
    name_column,
    published_column,
    summarise,
)

ROWS = [
    {"row": "soft", "seed": 2, "ppl": 8.0, "bleu": 30.0, "minutes": 1},
    {"row": "marginal", "seed": 1, "ppl": 6.5},
    {"row": "soft", "seed": 1, "ppl": 7.0, "bleu": None},
]


def test_a_summary_has_mean_and_sample_deviation_over_seeds():
    soft, marginal = summarise(ROWS, ("row",), ("ppl", "bleu"))
    assert soft == {"row": "soft", "seeds": [1, 2], "ppl": 7.5, "ppl_deviation": 0.7071, "bleu": 30.0}
    assert marginal == {"row": "marginal", "seeds": [1], "ppl": 6.5}


@pytest.fixture
def table():
    summary = summarise(ROWS, ("row",), ("ppl", "bleu"))
    summary[0]["published"] = {"ppl": 7.17}
    columns = (
        name_column("row | name", "row"),
        mean_column("PPL", "ppl"),
        mean_column("BLEU", "bleu", 1),
        published_column("paper", "ppl"),
    )
    return Table("A <caption>", columns, tuple(summary), ("A note.",))


def test_markdown(table):
    assert table.markdown().splitlines() == [
        "**A <caption>**",
        "",
        "| row \\| name | PPL | BLEU | paper |",
        "| :-- | --: | --: | --: |",
        "| soft | 7.50 ± 0.71 | 30.0 | 7.17 |",
        "| marginal | 6.50 | – | – |",
        "",
        "A note.",
    ]


def test_html_is_escaped_and_whole(table):
    page = html_page("T & T", [table], ["curve.png"])
    assert "<title>T &amp; T</title>" in page
    assert "<caption>A &lt;caption&gt;</caption>" in page
    assert '<td class="number">7.50 ± 0.71</td>' in page
    assert '<img src="curve.png"' in page
    assert page.rstrip().endswith("</html>")
    assert page.count("<tr>") == 3


def test_a_cell_that_is_pointed_out_is_bold_in_both_forms():
    column = Column(
        "agrees", lambda row: row["row"], is_number=False, is_strong=lambda row: row["row"] == "no"
    )
    table = Table("T", (column,), ({"row": "no"}, {"row": "yes"}))
    assert table.markdown().splitlines()[-2:] == ["| **no** |", "| yes |"]
    page = html_page("P", [table])
    assert '<td class="name"><strong>no</strong></td>' in page
    assert '<td class="name">yes</td>' in page
    assert "**" not in page


def test_a_title_is_not_said_twice():
    assert html_page("T", [Table("T", (name_column("a", "row"),), ())]).count("T</") == 2  # title and heading
    assert "<caption>" in html_page("Other", [Table("T", (name_column("a", "row"),), ())])


def test_a_bar_in_a_cell_does_not_end_it():
    table = Table("T", (name_column("a", "row"),), ({"row": "p(z|x)"},))
    assert "| p(z\\|x) |" in table.markdown()
