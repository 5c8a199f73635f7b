"""An aligner from its folder, used as a run is used."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import torch

from latentalign.text.aligned_pair import AlignedPair
from latentalign.text.parallel import Pair
from latentalign.training.trained_ensemble import Ensemble, load_together
from latentalign.training.trained_run import Run
from latentalign.training.trained_run import load as load_run
from latentalign.wordalign.aligner import Aligner
from latentalign.wordalign.folder import is_aligner


@dataclass(frozen=True)
class TrainedAligner:
    """What `load` gives for the folder of an aligner: `align` and `score` as a run has them."""

    folder: Path
    aligner: Aligner

    def align(
        self, pairs: Iterable[Pair], *, threshold: float | None = None, scores: bool = False
    ) -> list[AlignedPair]:
        """Word links of every pair, each with its probability, and the matrix of all probabilities.

        Links are those above the aligner's own threshold, unless another is given. `scores` adds how well the two
        sides explain each other.
        """
        return [
            AlignedPair(
                found.source_words,
                found.target_words,
                found.links(threshold=threshold),
                found.probs,
                found.score if scores else None,
            )
            for found in self.aligner.align(pairs)
        ]

    def score(self, pairs: Iterable[Pair]) -> list[float]:
        """How well the sides of every pair explain each other, per word; bad pairs come last."""
        return [found.score for found in self.aligner.align(pairs)]


@overload
def load(  # type: ignore[overload-overlap]  # a text is a sequence of texts, too
    folder: str | Path, *, device: str | torch.device = ...
) -> Run | TrainedAligner: ...


@overload
def load(folder: Sequence[str | Path], *, device: str | torch.device = ...) -> Run | Ensemble: ...


def load(
    folder: str | Path | Sequence[str | Path], *, device: str | torch.device = "auto"
) -> Run | TrainedAligner | Ensemble:
    """A trained run of any task, or an aligner, from its folder alone; from a list of folders, runs that work together.

    `device` is auto (a GPU where there is one), cpu, cuda or mps; aligners compute on the CPU.
    """
    if not isinstance(folder, str | Path):
        return load_together(folder, device=device)
    if is_aligner(Path(folder)):
        return TrainedAligner(Path(folder), Aligner.load(folder))
    return load_run(folder, device=device)
