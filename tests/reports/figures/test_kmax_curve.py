"""The curve over K with its two dotted lines."""

from latentalign.reports.figures.heatmap import render
from latentalign.reports.figures.kmax_curve import k_curve, references_of

POINTS = {
    "soft": {"kmax:1": 9.0, "kmax:10": 7.0, "kmax:2": 8.0, "exact": 7.0},
    "marginal": {"kmax:1": 8.0, "kmax:2": 7.0, "kmax:10": 6.5, "exact": 6.4},
}


def test_lines_in_order_of_k_and_references_dotted():
    figure = k_curve(POINTS, references={"soft attention": 7.2, "variational, all positions": 6.1})
    (axes,) = figure.axes
    curves = [line for line in axes.lines if line.get_linestyle() == "-"]
    dotted = [line for line in axes.lines if line.get_linestyle() == ":"]
    assert [list(line.get_xdata()) for line in curves] == [[1, 2, 10], [1, 2, 10]]
    assert list(curves[0].get_ydata()) == [9.0, 8.0, 7.0]
    assert sorted(line.get_ydata()[0] for line in dotted) == [6.1, 7.2]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "soft, tested with K-max",
        "marginal",
    ]
    assert render(figure, "png").startswith(b"\x89PNG")


def test_references_are_soft_as_trained_and_variational_with_all_positions():
    rows = [
        {"row": "soft", "inference": "soft", "ppl": 7.0},
        {"row": "soft", "inference": "soft", "ppl": 8.0},
        {"row": "soft", "inference": "kmax:5", "ppl": 9.0},
        {"row": "variational-sample", "inference": "exact", "ppl": 6.2},
    ]
    assert references_of(rows) == {"soft attention": 7.5, "variational, all positions": 6.2}
    rows.append({"row": "variational-enumerate", "inference": "exact", "ppl": 6.0})
    assert references_of(rows)["variational, all positions"] == 6.0
