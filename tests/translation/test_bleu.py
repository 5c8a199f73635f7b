"""BLEU through sacrebleu: known texts, and a model's own translations as their reference."""

import pytest

from latentalign.errors import UserError
from latentalign.translation.bleu import bleu_of_model, score_texts
from latentalign.translation.search import SearchOptions
from latentalign.translation.translate import Translator
from tests.translation.tiny import SENTENCES, tiny_assets, tiny_model


def test_the_reference_itself_scores_100():
    text = ["a small dog runs across the meadow .", "two men play football in the park"]
    scores = score_texts(text, text)
    assert scores["bleu"] == pytest.approx(100)
    assert scores["chrf"] == pytest.approx(100)
    assert "tok:13a" in scores["bleu_signature"]
    assert score_texts(text[::-1], text)["bleu"] < 20


def test_a_model_reaches_100_on_its_own_translations(tmp_path):
    assets = tiny_assets()
    model = tiny_model(assets)
    own = Translator(model, assets, options=SearchOptions(beam=2)).translate(SENTENCES)
    source, target = tmp_path / "s", tmp_path / "t"
    source.write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    target.write_text("\n".join(row[0].text for row in own) + "\n", encoding="utf-8")
    found = bleu_of_model(model, assets, source=source, target=target, inference="exact", beam=2)
    assert found["bleu"] == pytest.approx(100)
    with pytest.raises(UserError, match="k: "):
        bleu_of_model(model, assets, source=source, target=target, inference="kmax:0")
    with pytest.raises(UserError, match="--target"):
        bleu_of_model(model, assets, source=source, target=None, inference="exact")
