"""What an aligner says, as the API gives it."""

from collections.abc import Sequence
from functools import partial

from latentalign.inspector.pair_results import LinksAsked, finite
from latentalign.inspector.schemas import AlignResult, Matrices, ScoreResult
from latentalign.inspector.translation_results import row_entropy
from latentalign.text.parallel import Pair
from latentalign.wordalign.aligner import Aligner
from latentalign.wordalign.decoding import PairPosteriors


def align(aligner: Aligner, pairs: Sequence[Pair], asked: LinksAsked) -> list[AlignResult]:
    """As `latentalign align ALIGNER`. There is one distribution: what `by` and `exact` could choose is the same."""
    return [
        asked.result(found, found.links(threshold=asked.threshold), partial(_matrices, found))
        for found in aligner.align(pairs)
    ]


def _matrices(found: PairPosteriors) -> Matrices:
    # rows of link probabilities need not sum to 1; those of one direction do, with the null word
    return Matrices(
        posterior=found.probs.tolist(), entropy={"posterior": row_entropy(found.forward).tolist()}
    )


def score(aligner: Aligner, pairs: Sequence[Pair]) -> list[ScoreResult]:
    """As `latentalign align ALIGNER --scores`."""
    return [
        ScoreResult(score=finite(found.score), log_prob=None, pieces=len(found.target_words))
        for found in aligner.align(pairs)
    ]
