"""The work behind the API, free of HTTP: the functions of the command line, and what the page shows besides."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from latentalign.alignment.prediction import Predictor
from latentalign.inspector.pair_results import LinksAsked, finite, link_list
from latentalign.inspector.schemas import (
    AlignResult,
    By,
    Disagreement,
    Matrices,
    MatrixName,
    ScoreResult,
    SentenceResult,
    TranslationResult,
)
from latentalign.text.aligned_pair import with_null_word
from latentalign.text.links import format_links
from latentalign.text.symmetrise import decode_links
from latentalign.translation.align import PairAlignment, TranslationAligner
from latentalign.translation.translate import Translation, Translator


def translate(translator: Translator, sentences: Sequence[str], *, alignments: bool) -> list[SentenceResult]:
    """As `latentalign translate`."""
    found = translator.translate(sentences, alignments=alignments)
    return [
        SentenceResult(
            source_words=translator.assets.source.words(sentence),
            translations=[_translation(one, translator.links_by if alignments else None) for one in best],
        )
        for sentence, best in zip(sentences, found, strict=True)
    ]


def _translation(found: Translation, by: str | None) -> TranslationResult:
    links = None if by is None else found.links(by)
    return TranslationResult(
        text=found.text,
        words=found.text.split(),
        score=found.score,
        log_prob=found.log_prob,
        links=None if links is None else link_list(links),
        pharaoh=None if links is None else format_links(links),
    )


def align(
    aligner: TranslationAligner, pairs: Sequence[tuple[str, str]], asked: LinksAsked
) -> list[AlignResult]:
    """As `latentalign align`."""
    return [
        asked.result(
            found,
            decode_links(found.probs(asked.by), threshold=asked.threshold),
            partial(_matrices, found),
        )
        for found in aligner.align(pairs, exact=asked.exact, score=asked.scores)
    ]


def _matrices(found: PairAlignment) -> Matrices:
    tables: dict[MatrixName, np.ndarray] = {"prior": found.prior}
    if found.posterior is not None:
        tables["posterior"] = found.posterior
    if found.exact is not None:
        tables["exact"] = found.exact
    if found.filtered is not None:
        tables["filtered"] = found.filtered
    other: By | None = "posterior" if "posterior" in tables else "exact" if "exact" in tables else None
    return Matrices(
        **{name: table.tolist() for name, table in tables.items()},
        entropy={name: row_entropy(table).tolist() for name, table in tables.items()},
        disagreement=None
        if other is None
        else Disagreement(
            between=("prior", other), distance=row_distance(tables["prior"], tables[other]).tolist()
        ),
    )


def row_entropy(rows: np.ndarray) -> np.ndarray:
    """Entropy of every row in nats, the null word being one of the outcomes: [T]."""
    probs = with_null_word(rows)
    return -(probs * np.log(np.where(probs > 0, probs, 1.0))).sum(axis=1) + 0.0


def row_distance(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Total variation distance between the rows of two tables: [T]."""
    return 0.5 * np.abs(with_null_word(one) - with_null_word(other)).sum(axis=1)


def score(
    aligner: TranslationAligner,
    pairs: Sequence[tuple[str, str]],
    *,
    predictor: Predictor | None = None,
    seed: int = 0,
) -> list[ScoreResult]:
    """As `latentalign align --scores`, or by any way to predict."""
    lengths = [len(aligner.encode(*pair).target) for pair in pairs]
    if predictor is not None:
        found: list[float | None] = list(aligner.score(pairs, predictor, seed=seed))
    else:
        found = [one.score for one in aligner.align(pairs, score=True)]
    return [_score(value, pieces) for value, pieces in zip(found, lengths, strict=True)]


def _score(mean: float | None, pieces: int) -> ScoreResult:
    mean = finite(mean)
    return ScoreResult(score=mean, log_prob=None if mean is None else mean * pieces, pieces=pieces)
