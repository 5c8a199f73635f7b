"""The page of a results folder."""

import json

from latentalign.reports.paper import vqa_study
from latentalign.reports.paper.claims import order_claims
from latentalign.reports.paper.published import TRANSLATION
from latentalign.reports.paper.results_files import write_json
from latentalign.reports.paper.results_page import write_page


def table1(folder, **changes):
    figures = {name: dict(values) for name, values in TRANSLATION.items()}
    for name, values in changes.items():
        figures[name] |= values
    summary = [{"row": name, "objective": name, "seeds": [1], **values} for name, values in figures.items()]
    claims = order_claims("translation", "table1", summary)
    content = {"recipe": "mine", "rows": [], "summary": summary, "claims": claims, "significance": []}
    write_json(folder / "table1.json", content)


def test_the_page_counts_what_agrees_and_names_what_does_not(tmp_path):
    table1(tmp_path)
    write_page(tmp_path)
    assert (
        "Of 18 statements about order that the paper's tables make, 18 hold here."
        in (tmp_path / "README.md").read_text()
    )
    table1(tmp_path, soft={"ppl": 6.2})
    write_page(tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert "17 hold here; not:\n\n- PPL: soft > marginal (here 6.20 and 6.34)\n" in page
    assert "| PPL: soft > marginal | 7.17 : 6.34 | 6.20 : 6.34 | **no** |" in page
    assert "recipe `mine`" in page


def test_notes_are_taken_in_and_their_place_is_marked_without_them(tmp_path):
    table1(tmp_path)
    write_page(tmp_path)
    assert "<!-- notes.md beside this page is included here" in (tmp_path / "README.md").read_text()
    (tmp_path / "notes.md").write_text("We tried **everything**.\n")
    write_page(tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert "## What we make of it\n\nWe tried **everything**.\n" in page
    assert "<!--" not in page
    assert page.index("everything") < page.index("## Every objective")


def test_figures_are_shown(tmp_path):
    rows = [
        {
            "contrast": "a against b",
            "rank": 1,
            "line": 3,
            "divergence": 0.5,
            "mean_divergence": 0.1,
            "picture": "p.png",
        }
    ]
    write_json(tmp_path / "figure3.json", {"recipe": "mine", "rule": "The largest.", "rows": rows})
    write_page(tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert "![a against b, rank 1](p.png)" in page
    assert "The largest." in page


def test_a_page_takes_the_layouts_of_its_task(tmp_path):
    row = {"row": "soft", "objective": "soft", "estimator": "-", "phases": "none", "nll": 0.8, "seeds": [1]}
    content = {"table": "table1", "recipe": "vqa-scenes", "rows": [], "summary": [row], "claims": []}
    (tmp_path / "table1.json").write_text(json.dumps(content), encoding="utf-8")
    (tmp_path / "notes.md").write_text("What was seen.", encoding="utf-8")
    write_page(tmp_path, vqa_study.LAYOUTS)
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "Table 1, VQA" in page
    assert "phases before" in page
    assert "0.800" in page
    assert "What was seen." in page
