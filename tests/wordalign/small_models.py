"""Small models of random counts, and what plain arithmetic says of their parts."""

from collections import Counter

import numpy as np
import torch

from latentalign.wordalign.estimation.counts import Counts, JumpCounts, SparseCounts, pair_keys
from latentalign.wordalign.estimation.lexicon import cuts
from latentalign.wordalign.settings import Settings
from latentalign.wordalign.text.vocabulary import WordVocabulary
from tests.wordalign import oracle
from tests.wordalign.corpora import generated

SETTINGS = Settings(
    jump_classes=3,
    widest_jump=5,
    prefixes=(2,),
    suffixes=(3,),
    likeness_weight=0.6,
    band_weight=0.0,
    shard_cells=500,
)


def corpus(pairs: int = 30, **options: int) -> list[tuple[list[str], list[str]]]:
    return [(left.split(), right.split()) for left, right in generated(pairs, **options)[0]]


def vocabularies(pairs: list[tuple[list[str], list[str]]]) -> tuple[WordVocabulary, WordVocabulary]:
    return WordVocabulary.of(pair[0] for pair in pairs), WordVocabulary.of(pair[1] for pair in pairs)


def random_counts(
    known: tuple[WordVocabulary, WordVocabulary],
    *,
    seed: int = 0,
    agree: bool = True,
    settings: Settings = SETTINGS,
) -> Counts:
    """Counts as if learnt; the directions have links of their own unless they agree."""
    chance = np.random.default_rng(seed)
    links = [_random_links(known, chance) for _ in range(1 if agree else 2)]
    null = chance.gamma(0.5, 2.0, len(known[1])), chance.gamma(0.5, 2.0, len(known[0]))
    shape = (settings.jump_classes + 1, 2 * settings.widest_jump + 1)
    jumps = [JumpCounts(chance.gamma(1.0, 5.0, shape), chance.gamma(1.0, 5.0, shape) + 1) for _ in range(2)]
    return Counts((links[0], links[-1]), null, (jumps[0], jumps[1]), 1, 1, 0.0)


def _random_links(known: tuple[WordVocabulary, WordVocabulary], chance: np.random.Generator) -> SparseCounts:
    f, e = np.meshgrid(*(np.arange(len(vocabulary)) for vocabulary in known), indexing="ij")
    values = chance.gamma(0.3, 3.0, f.size).astype(np.float32)
    values[chance.random(f.size) < 0.4] = 0.0
    return SparseCounts(pair_keys(f.ravel(), e.ravel())[values > 0], values[values > 0])


def plain_lexicon(
    counts: Counts, known: tuple[WordVocabulary, WordVocabulary], direction: int, estimate
) -> oracle.Table:
    links = counts.links[direction]
    table = {}
    for f, e, value in zip(links.sources, links.targets, links.values.astype(float), strict=True):
        pair = known[0].words[f], known[1].words[e]
        table[pair if direction == 0 else pair[::-1]] = value
    sides = [Counter(dict(zip(v.words, v.counts.tolist(), strict=True))) for v in known]
    return oracle.lexicon(
        table,
        *(sides if direction == 0 else sides[::-1]),
        alpha=SETTINGS.alpha,
        affix_weight=SETTINGS.affix_weight,
        affix_alpha=SETTINGS.affix_alpha,
        cuts=cuts(SETTINGS),
        least_likeness=SETTINGS.least_likeness,
        likeness_weight=SETTINGS.likeness_weight,
        estimate=estimate,
    )


def jump_functions(weights: torch.Tensor, classes: list[int], length: int):
    """p(position | last) and the weight of ending, from the table of weights, by plain arithmetic."""
    width, table = (weights.shape[1] - 1) // 2, weights.tolist()

    def c(k: int, d: int) -> float:
        return table[k][max(-width, min(width, d)) + width]

    def jump(last: int | None, position: int) -> float:
        k, place = (len(weights) - 1, 0) if last is None else (classes[last], last)
        return c(k, position - place) / sum(c(k, i - place) for i in range(length))

    def end(last: int) -> float:
        stop = c(classes[last], length - last)
        return stop / (sum(c(classes[last], i - last) for i in range(length)) + stop)

    return jump, end
