"""The demonstration as one HTML page that needs nothing else: pictures are inside."""

import base64
from collections.abc import Iterable, Sequence
from html import escape

from matplotlib.figure import Figure

import latentalign
from latentalign.reports.demo.comparison import PICTURES, SAMPLES, Demo, rows
from latentalign.reports.figures.heatmap import heatmap, render
from latentalign.reports.figures.training_curves import training_curves
from latentalign.translation.synthetic import Example

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1c2430; background: #fff; margin: 2rem auto; padding: 0 1rem;
  max-width: 72rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.note { background: #fff6e0; border-left: 4px solid #e0a000; padding: .6rem 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: .8rem 0; } th, td { padding: .3rem .8rem; text-align: right; }
th { border-bottom: 2px solid #8a94a3; font-weight: 600; } td { border-bottom: 1px solid #e3e7ec; }
th:first-child, td:first-child { text-align: left; } td.best { font-weight: 700; }
.samples td { text-align: left; vertical-align: top; } .samples tr.first td { border-top: 2px solid #c4cbd4; }
figure { margin: 1.2rem 0; } img { max-width: 100%; height: auto; } figcaption { color: #55606e; font-size: .9rem; }
"""

_SMALLER_IS_BETTER = {"PPL", "AER prior", "AER posterior", "AER by Bayes"}
_LARGER_IS_BETTER = {"BLEU", "chrF"}


def page(demo: Demo) -> str:
    """The report."""
    size = demo.size
    parts = [
        "<h1>Soft and variational attention on a generated corpus</h1>",
        f"<p>latentalign {escape(latentalign.__version__)}, seed {size.seed}, {demo.seconds / 60:.1f} minutes in all "
        f"({_parts(demo)}).</p>",
        "<p class='note'><strong>The corpus is generated.</strong> A small program wrote these German–English-like "
        f"sentences from its own lexicon and grammar: {size.train} pairs to train, {size.valid} to validate and "
        f"{len(demo.test)} to test, with gold alignments. The figures show how the two kinds of attention compare on "
        "it; they say nothing about real German or English.</p>",
        "<h2>The comparison on the test set</h2>",
        f"<div class='scroll'>{_table(rows(demo))}</div>",
        _explanation(demo),
        "<h2>Where the models look</h2>",
        *(_pictures(demo)),
        "<h2>Translations</h2>",
        f"<div class='scroll'>{_samples(demo)}</div>",
        "<h2>Training</h2>",
        _figure(
            training_curves({name: outcome.curve for name, outcome in demo.outcomes.items()}),
            "What validation measured after every epoch.",
        ),
    ]
    head = f"<meta charset='utf-8'><title>latentalign demo</title><style>{_STYLE}</style>"
    viewport = "<meta name='viewport' content='width=device-width, initial-scale=1'>"
    return (
        f"<!doctype html>\n<html lang='en'><head>{head}{viewport}</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _parts(demo: Demo) -> str:
    return ", ".join(f"{escape(name)} {seconds:.0f} s" for name, seconds in demo.steps.items())


def _table(table: Sequence[Sequence[str]]) -> str:
    header = "".join(f"<th>{escape(cell)}</th>" for cell in table[0])
    best = [_best(table, column) for column in range(len(table[0]))]
    body = ""
    for number, row in enumerate(table[1:]):
        cells = (
            f"<td{' class=best' if number == best[column] else ''}>{escape(cell)}</td>"
            for column, cell in enumerate(row)
        )
        body += f"<tr>{''.join(cells)}</tr>"
    return f"<table><tr>{header}</tr>{body}</table>"


def _best(table: Sequence[Sequence[str]], column: int) -> int | None:
    """Which model wins a column, if there is something to win and more than one in it."""
    title = table[0][column]
    if title not in _SMALLER_IS_BETTER | _LARGER_IS_BETTER:
        return None
    values = [(float(row[column]), number) for number, row in enumerate(table[1:]) if row[column] != "–"]
    if len(values) < 2 or len({value for value, _ in values}) == 1:
        return None
    return (min if title in _SMALLER_IS_BETTER else max)(values)[1]


def _explanation(demo: Demo) -> str:
    signature = next(iter(demo.outcomes.values())).bleu_signature
    items = [
        "<b>PPL</b>: perplexity per piece of the test targets, end of sentence counted; soft attention by its expected "
        "context, variational attention by the exact marginal.",
        f"<b>BLEU</b>, <b>chrF</b>: beam {demo.size.beam}, sacrebleu {escape(signature)}.",
        "<b>AER</b>: alignment error rate of the likeliest source word of every target word, smaller is better. "
        "<i>Prior</i> is the attention before the word is known; <i>posterior</i> the inference network, which sees "
        "the whole target; <i>by Bayes</i> the prior times the likelihood of the word, which needs no network. Some "
        "target words have two gold links, so 0 is out of reach.",
        "<b>Prior entropy</b>: how undecided the attention is, in nats. <b>KL</b>: what the posterior knows beyond the "
        "prior, in nats a piece.",
    ]
    return "<ul>" + "".join(f"<li>{item}</li>" for item in items) + "</ul>"


def chosen(test: Sequence[Example], count: int) -> list[int]:
    """Pairs to show: of middling length, so that something is reordered and the picture stays readable."""
    fitting = [number for number, example in enumerate(test) if 10 <= len(example.target.split()) <= 18]
    return (fitting or list(range(len(test))))[:count]


def _pictures(demo: Demo) -> Iterable[str]:
    for number in chosen(demo.test, PICTURES):
        example = demo.test[number]
        panels = {}
        for name, outcome in demo.outcomes.items():
            found = outcome.alignments[number]
            panels[f"{name}: prior"] = found.prior
            if outcome.measures.aer_posterior is not None:
                panels[f"{name}: posterior"] = found.probs("posterior")
        figure = heatmap(panels, example.source.split(), example.target.split(), gold=example.links)
        yield _figure(figure, f"{example.source} → {example.target} Gold links are framed.")


def _figure(figure: Figure, caption: str) -> str:
    data = base64.b64encode(render(figure, "png")).decode()
    return (
        f"<figure><img alt='{escape(caption, quote=True)}' src='data:image/png;base64,{data}'>"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _samples(demo: Demo) -> str:
    lines = ""
    for number, example in enumerate(demo.test[:SAMPLES]):
        shown = [("source", example.source), ("reference", example.target)]
        shown += [(name, outcome.translations[number]) for name, outcome in demo.outcomes.items()]
        for place, (name, text) in enumerate(shown):
            mark = " class=first" if place == 0 else ""
            right = " ✓" if place > 1 and text == example.target else ""
            lines += f"<tr{mark}><td>{escape(name)}</td><td>{escape(text)}{right}</td></tr>"
    return f"<table class='samples'>{lines}</table>"
