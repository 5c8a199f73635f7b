"""Word links of a corpus, spread over pieces: what an external posterior is made of."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from latentalign.errors import UserError
from latentalign.text.links import Links, check_links
from latentalign.text.parallel import Pair
from latentalign.translation.data.assets import TranslationAssets


@dataclass(frozen=True)
class PieceLinks:
    """Probabilities of links between pieces, those of all pairs in flat arrays."""

    targets: np.ndarray  # [L] int32, the target piece of every link
    sources: np.ndarray  # [L] int32
    probs: np.ndarray  # [L] float32
    offsets: np.ndarray  # [N+1] int64, where the links of a pair begin

    def table(self, indices: Sequence[int], targets: int, sources: int) -> Tensor:
        """The links of some pairs as one padded tensor [B,T,S]."""
        found = np.zeros((len(indices), targets, sources), dtype=np.float32)
        for row, index in enumerate(indices):
            part = slice(self.offsets[index], self.offsets[index + 1])
            found[row, self.targets[part], self.sources[part]] = self.probs[part]
        return torch.from_numpy(found)


def spread_links(links: Links, source_index: Sequence[int], target_index: Sequence[int]) -> np.ndarray:
    """Links of words as rows over pieces [T,S], given the word of every piece (−1: the end mark).

    Every piece of a target word has the row of its word, and a source word shares its probability evenly among its
    pieces. The rest of a word's probability is on the source's end mark, which stands for the null word.
    """
    rows, columns = np.array(target_index), np.array(source_index)
    # the last row and column are those of the end marks
    last_row = max([*target_index, *(j for _, j in links.all)], default=-1) + 1
    last_column = max([*source_index, *(i for i, _ in links.all)], default=-1) + 1
    words = np.zeros((last_row + 1, last_column + 1))
    for i, j in links.all:
        words[j, i] = 1.0 if links.probs is None else links.probs.get((i, j), 1.0)
    words[:, -1] = np.clip(1.0 - words.sum(axis=1), 0.0, 1.0)
    pieces = np.bincount(columns % words.shape[1], minlength=words.shape[1])  # −1 is the last here, too
    return words[rows][:, columns] / pieces[columns]


def read_piece_links(
    pairs: Iterable[Pair], links: Iterable[Links], assets: TranslationAssets, kept: np.ndarray, path: Path
) -> PieceLinks:
    """The links of those pairs whose line numbers (from 1) were kept; both have to have as many lines."""
    chosen = set(kept.tolist())
    targets, sources, probs, offsets = array("i"), array("i"), array("f"), array("q", [0])
    for line, (pair, found) in enumerate(zip_longest(pairs, links), start=1):
        if pair is None or found is None:
            raise UserError(
                f"{path}: {'more' if pair is None else 'fewer'} lines than there are pairs; "
                "expected the links of one pair a line, as align writes them"
            )
        if line not in chosen:
            continue
        counts = len(assets.source.words(pair[0])), len(assets.target.words(pair[1]))
        check_links(found, *counts, place=f"{path}, line {line}")
        _, source_index = assets.encode_source(pair[0])
        _, target_index = assets.encode_target(pair[1])
        table = spread_links(found, source_index, target_index)
        rows, columns = table.nonzero()
        targets.extend(rows.tolist())
        sources.extend(columns.tolist())
        probs.extend(table[rows, columns].tolist())
        offsets.append(len(targets))
    return PieceLinks(
        np.frombuffer(targets, dtype=np.int32),
        np.frombuffer(sources, dtype=np.int32),
        np.frombuffer(probs, dtype=np.float32),
        np.frombuffer(offsets, dtype=np.int64),
    )
