"""BLEU through sacrebleu: known texts."""

import pytest

from latentalign.translation.bleu import score_texts


def test_the_reference_itself_scores_100():
    text = ["a small dog runs across the meadow .", "two men play football in the park"]
    scores = score_texts(text, text)
    assert scores["bleu"] == pytest.approx(100)
    assert scores["chrf"] == pytest.approx(100)
    assert "tok:13a" in scores["bleu_signature"]
    assert score_texts(text[::-1], text)["bleu"] < 20
