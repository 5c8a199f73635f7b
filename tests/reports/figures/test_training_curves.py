"""Training curves from metrics.jsonl."""

import json

import pytest

from latentalign.errors import UserError
from latentalign.reports.figures.heatmap import render
from latentalign.reports.figures.training_curves import bound_curves, curves_of_run, training_curves


def record(n, objective):
    bound = {"elbo": -4 / n, "kl": 0.1} if n >= 3 else {}
    values = {"nll": 3 / n, "ppl": 20 / n, "prior_entropy": 1.0 / n, "learning_rate": 1e-3, **bound}
    return {"step": 10 * n, "epoch": float(n), "phase": "soft" if n < 3 else objective, **values}


def records(objective="variational"):
    return [record(n, objective) for n in range(1, 6)]


def test_every_measure_has_its_panel_and_points(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records()) + '{"step": 60, "ep')
    figure = curves_of_run(tmp_path)
    panels = {axes.get_title(loc="left"): axes for axes in figure.axes}
    assert set(panels) == {
        "perplexity", "nats per output", "KL[q‖p], nats", "prior entropy, nats", "learning rate"
    }  # fmt: skip
    assert panels["perplexity"].lines[0].get_ydata().tolist() == [20, 10, 20 / 3, 5, 4]
    nll, bound = panels["nats per output"].lines[:2]
    assert (len(nll.get_xdata()), len(bound.get_xdata())) == (5, 3)
    assert min(bound.get_ydata()) > 0  # drawn with its sign turned, above the likelihood's
    assert panels["perplexity"].lines[1].get_xdata() == [2.0, 2.0]  # where the phase changed
    assert render(figure, "png").startswith(b"\x89PNG")


def test_several_runs_are_drawn_together():
    figure = training_curves({"soft": records("soft"), "variational": records()})
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["soft", "variational"]


def test_likelihood_and_bound_of_a_run_have_one_colour_and_go_over_updates():
    soft = [{key: value for key, value in one.items() if key != "elbo"} for one in records("soft")]
    (axes,) = bound_curves({"soft": soft, "variational": records()}).axes
    first, likelihood, bound = axes.lines
    assert first.get_xdata().tolist() == [10, 20, 30, 40, 50]
    assert likelihood.get_color() == bound.get_color() != first.get_color()
    assert bound.get_xdata().tolist() == [30, 40, 50]
    assert bound.get_ydata().tolist() == pytest.approx([4 / 3, 1, 4 / 5])
    assert [line.get_linestyle() for line in axes.lines] == ["-", "-", "--"]


def test_mistakes(tmp_path):
    with pytest.raises(UserError, match=r"no metrics\.jsonl"):
        curves_of_run(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(UserError, match="no validation"):
        curves_of_run(tmp_path)
