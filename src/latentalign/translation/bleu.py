"""BLEU and chrF of a model's translations, by sacrebleu, with the signature that makes them comparable."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from latentalign.alignment.registry import parse_inference
from latentalign.errors import UserError
from latentalign.translation.assets import TranslationAssets
from latentalign.translation.config import PairFiles
from latentalign.translation.corpus import read_pairs
from latentalign.translation.model import TranslationModel
from latentalign.translation.search import SearchOptions
from latentalign.translation.translate import Translator


def score_texts(translations: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """BLEU (0 to 100) of detokenised text with its signature, and chrF."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    # `force` only silences a remark on text whose full stops stand apart; it scores alike
    bleu, chrf = BLEU(force=True), CHRF()
    found = bleu.corpus_score(list(translations), [list(references)])
    return {
        "bleu": found.score,
        "bleu_signature": str(bleu.get_signature()),
        "chrf": chrf.corpus_score(list(translations), [list(references)]).score,
    }


def bleu_of_model(
    model: TranslationModel,
    assets: TranslationAssets,
    *,
    source: str | Path | None,
    target: str | Path | None,
    inference: str,
    beam: int = 10,
) -> dict[str, Any]:
    """Translate a file and score the result against its reference."""
    if source is None or target is None:
        raise UserError("BLEU needs both --source and --target")
    options = SearchOptions(beam=beam)
    try:
        predictor = parse_inference(inference)
    except ValueError as error:
        raise UserError(str(error)) from None
    pairs = list(read_pairs(PairFiles(source=str(source), target=str(target))))
    translator = Translator(model, assets, options=options, predictor=predictor)
    found = translator.translate([left for left, _ in pairs])
    return score_texts([row[0].text for row in found], [right for _, right in pairs])
