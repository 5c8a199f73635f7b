"""What an aligner says, as the API gives it."""

from collections.abc import Sequence

from latentalign.inspector.schemas import AlignResult, By, Matrices, ScoreResult
from latentalign.inspector.translation_results import finite, link_list, row_entropy
from latentalign.text.links import format_links
from latentalign.text.parallel import Pair
from latentalign.wordalign.aligner import Aligner


def align(
    aligner: Aligner,
    pairs: Sequence[Pair],
    *,
    by: By,
    exact: bool,
    scores: bool,
    matrices: bool,
    threshold: float | None,
) -> list[AlignResult]:
    """As `latentalign align ALIGNER`. There is one distribution: what `by` and `exact` could choose is the same."""
    results = []
    for found in aligner.align(pairs):
        links = found.links(threshold=threshold)
        # a probability of its own for every link: rows need not sum to 1, those of one direction do with no word
        tables = Matrices(
            posterior=found.probs.tolist(), entropy={"posterior": row_entropy(found.forward).tolist()}
        )
        results.append(
            AlignResult(
                source_words=found.source_words,
                target_words=found.target_words,
                links=link_list(links),
                pharaoh=format_links(links, probs=links if scores else None),
                score=finite(found.score) if scores else None,
                matrices=tables if matrices else None,
            )
        )
    return results


def score(aligner: Aligner, pairs: Sequence[Pair]) -> list[ScoreResult]:
    """As `latentalign align ALIGNER --scores`."""
    return [
        ScoreResult(score=finite(found.score), log_prob=None, pieces=len(found.target_words))
        for found in aligner.align(pairs)
    ]
