"""The demonstration as one HTML page that needs nothing else: pictures are inside."""

import base64
from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib.figure import Figure

import latentalign
from latentalign.reports.demo.comparison import PICTURES, SAMPLES, Demo, rows
from latentalign.reports.figures.heatmap import heatmap, render
from latentalign.reports.figures.training_curves import training_curves
from latentalign.reports.html_pages import render_page
from latentalign.translation.generated.corpus import Example

_SMALLER_IS_BETTER = {"PPL", "AER prior", "AER posterior", "AER by Bayes"}
_LARGER_IS_BETTER = {"BLEU", "chrF"}


def page(demo: Demo) -> str:
    """The report."""
    heads, *body = rows(demo)
    curves = training_curves({name: outcome.curve for name, outcome in demo.outcomes.items()})
    return render_page(
        "demo",
        version=latentalign.__version__,
        size=demo.size,
        seconds=demo.seconds,
        steps=demo.steps,
        test_pairs=len(demo.test),
        aligner=demo.aligner,
        heads=heads,
        rows=_marked(heads, body),
        bleu_signature=next(iter(demo.outcomes.values())).bleu_signature,
        heatmaps=list(_heatmaps(demo)),
        samples=[list(_sample(demo, number)) for number in range(min(SAMPLES, len(demo.test)))],
        curves=_picture(curves, "What validation measured after every epoch."),
    )


def _marked(heads: Sequence[str], body: Sequence[Sequence[str]]) -> list[list[dict[str, Any]]]:
    """Cells of the table, the best of each column marked."""
    best = [_best(head, [row[column] for row in body]) for column, head in enumerate(heads)]
    return [
        [{"text": text, "is_best": number == best[column]} for column, text in enumerate(row)]
        for number, row in enumerate(body)
    ]


def _best(head: str, texts: Sequence[str]) -> int | None:
    """Which model wins a column, if there is something to win and more than one in it."""
    if head not in _SMALLER_IS_BETTER | _LARGER_IS_BETTER:
        return None
    values = [(float(text), number) for number, text in enumerate(texts) if text != "–"]
    if len(values) < 2 or len({value for value, _ in values}) == 1:
        return None
    return (min if head in _SMALLER_IS_BETTER else max)(values)[1]


def chosen(test: Sequence[Example], count: int) -> list[int]:
    """Pairs to show: of middling length, so that something is reordered and the picture stays readable."""
    fitting = [number for number, example in enumerate(test) if 10 <= len(example.target.split()) <= 18]
    return (fitting or list(range(len(test))))[:count]


def _heatmaps(demo: Demo) -> Iterator[dict[str, str]]:
    for number in chosen(demo.test, PICTURES):
        example = demo.test[number]
        panels = {}
        for name, outcome in demo.outcomes.items():
            found = outcome.alignments[number]
            panels[f"{name}: prior"] = found.prior
            if outcome.measures.aer_posterior is not None:
                panels[f"{name}: posterior"] = found.probs("posterior")
        panels["aligner"] = demo.aligner.probs[number]
        figure = heatmap(panels, example.source.split(), example.target.split(), gold=example.links)
        yield _picture(figure, f"{example.source} → {example.target} Gold links are framed.")


def _picture(figure: Figure, caption: str) -> dict[str, str]:
    data = base64.b64encode(render(figure, "png")).decode()
    return {"caption": caption, "data": f"data:image/png;base64,{data}"}


def _sample(demo: Demo, number: int) -> Iterator[dict[str, Any]]:
    """A test sentence, its reference, and what every model made of it."""
    example = demo.test[number]
    yield {"name": "source", "text": example.source, "is_right": False}
    yield {"name": "reference", "text": example.target, "is_right": False}
    for name, outcome in demo.outcomes.items():
        text = outcome.translations[number]
        yield {"name": name, "text": text, "is_right": text == example.target}
