"""The demonstration's report, from made-up results; training itself is tested through the command line."""

import re
from dataclasses import replace

import numpy as np
import pytest

from latentalign.errors import UserError
from latentalign.reports.demo.comparison import (
    Demo,
    DemoSize,
    Measures,
    Outcome,
    error_rate,
    measure_aligner,
    rows,
    summary,
)
from latentalign.reports.demo.page import chosen, page
from latentalign.translation.align import PairAlignment
from latentalign.translation.generated.corpus import Example, generate
from latentalign.wordalign.decoding import PairPosteriors

SOFT = Measures(
    ppl=3.0,
    nll=1.1,
    bleu=40.0,
    chrf=60.0,
    prior_entropy=1.5,
    aer_prior=0.5,
    aer_exact=0.3,
    aer_posterior=None,
    elbo=None,
    kl=None,
    training_seconds=90.0,
)
VARIATIONAL = replace(SOFT, ppl=2.5, bleu=42.0, aer_prior=0.4, aer_posterior=0.1, kl=0.6)


def outcome(measures, test):
    random = np.random.default_rng(1)
    alignments = []
    for example in test:
        source, target = example.source.split(), example.target.split()
        matrix = random.dirichlet(np.full(len(source), 0.2), len(target))
        posterior = matrix if measures.aer_posterior is not None else None
        alignments.append(PairAlignment(source, target, matrix, posterior, matrix))
    curve = [{"epoch": float(n), "ppl": 9.0 / n, "nll": 2.0 / n, "prior_entropy": 1.0} for n in (1, 2, 3)]
    translations = [example.target if number % 2 else "a <b> & c" for number, example in enumerate(test)]
    return Outcome(measures, translations, alignments, curve, "nrefs:1|tok:13a")


class Fixed:
    """An aligner that knows the gold links but for the last of each pair."""

    def align(self, pairs):
        gold = {example.source: example for example in generate(30, seed=2)}
        for source, target in pairs:
            words = source.split(), target.split()
            probs = np.zeros((len(words[1]), len(words[0])))
            for i, j in gold[source].links[:-1]:
                probs[j, i] = 0.9
            yield PairPosteriors(*words, probs, probs, probs, threshold=0.5, score=-1.0)


@pytest.fixture(scope="module")
def demo():
    test = generate(30, seed=2)
    outcomes = {"soft": outcome(SOFT, test), "variational": outcome(VARIATIONAL, test)}
    aligner = measure_aligner(Fixed(), 4.0, test, outcomes["variational"])
    return Demo(DemoSize(), test, outcomes, aligner, seconds=300.0, steps={"generate": 1.0, "train": 200.0})


@pytest.fixture(scope="module")
def html(demo):
    return page(demo)


def test_the_page_needs_nothing_else(html):
    assert html.startswith("<!doctype html>")
    links = re.findall(r'(?:src|href)="([^"]{0,40})', html)
    assert len(links) == 4  # three heat maps and the curves
    assert all(link.startswith("data:image/png;base64,") for link in links)
    assert "<script" not in html


def test_it_says_that_the_corpus_is_generated(html, demo):
    assert "The corpus is generated." in html
    assert demo.to_dict()["corpus"] == "generated"


def test_winners_are_marked_and_absent_figures_are_not_zero(html):
    bold = re.findall(r'<td class="best">([^<]*)</td>', html)
    # variational: PPL, BLEU, AER of the prior; the aligner: AER; nobody wins a draw
    assert bold == ["2.500", "42.00", "0.400", html_rows(html)["aligner"][6]]
    assert "<td>–</td>" in html


def html_rows(html):
    cells = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", html)]
    return {row[0]: row for row in cells if row}


def test_the_aligner_has_its_row_and_its_picture(html, demo):
    missed = len(demo.test)
    gold = sum(len(example.links) for example in demo.test)
    assert demo.aligner.aer == pytest.approx(1 - 2 * (gold - missed) / (2 * gold - missed))
    assert html_rows(html)["aligner"][6] == f"{demo.aligner.aer:.3f}"
    assert html_rows(html)["variational + aligner"][6] == f"{demo.aligner.aer_together:.3f}"
    assert demo.to_dict()["aligner"]["seconds"] >= 4.0
    assert len(demo.aligner.probs) == len(demo.test)


def test_text_is_escaped_and_right_translations_are_ticked(html, demo):
    assert "a &lt;b&gt; &amp; c" in html
    assert "<b> &" not in html
    assert f"{demo.test[1].target} ✓" in html


def test_the_summary_has_a_row_a_model(demo):
    table = rows(demo)
    names = ["soft", "variational", "aligner", "variational + aligner"]
    assert [row[0] for row in table] == ["links by", *names]
    lines = summary(demo).splitlines()
    assert len(lines) == 5
    assert len({len(line) for line in lines}) == 1
    assert "2.500" in lines[2]


def test_error_rate_of_gold_itself_is_what_one_link_a_word_leaves():
    example = Example("a b c", "x y", ((0, 0), (1, 1), (2, 1)))
    matrix = np.array([[1.0, 0.0, 0.0], [0.0, 0.6, 0.4]])
    assert error_rate([matrix], [example]) == pytest.approx(1 - (2 + 2) / (2 + 3))


def test_shown_pairs_are_of_middling_length(demo):
    for number in chosen(demo.test, 3):
        assert 10 <= len(demo.test[number].target.split()) <= 18
    assert chosen(demo.test[:0], 3) == []


def test_a_demonstration_without_sentences_is_refused():
    with pytest.raises(UserError, match="train: expected at least one sentence pair, got 0"):
        DemoSize(train=0)
