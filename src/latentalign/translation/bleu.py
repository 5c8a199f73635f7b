"""BLEU and chrF of a model's translations, by sacrebleu, with the signature that makes them comparable."""

from collections.abc import Sequence
from typing import Any


def score_texts(translations: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """BLEU (0 to 100) of detokenised text with its signature, and chrF."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    # `force` only silences a warning about tokenised text; the score is the same
    bleu, chrf = BLEU(force=True), CHRF()
    found = bleu.corpus_score(list(translations), [list(references)])
    return {
        "bleu": found.score,
        "bleu_signature": str(bleu.get_signature()),
        "chrf": chrf.corpus_score(list(translations), [list(references)]).score,
    }
