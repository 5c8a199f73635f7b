"""An aligner from its folder, used as a run is used."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from latentalign.errors import UserError
from latentalign.text.aligned_pair import AlignedPair
from latentalign.text.parallel import Pair
from latentalign.training.loaded import Loaded
from latentalign.training.trained_ensemble import load_together
from latentalign.training.trained_run import Run
from latentalign.training.trained_run import load as load_run
from latentalign.wordalign.aligner import Aligner
from latentalign.wordalign.folder import is_aligner


@dataclass(frozen=True)
class TrainedAligner(Loaded):
    """What `load` gives for the folder of an aligner: `align` and `score` as a run has them.

    Example:
        for pair in la.load("runs/aligner").align([("ein hund bellt .", "a dog barks .")]):
            print(pair)
    """

    folder: Path
    aligner: Aligner

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def __str__(self) -> str:
        return f"{self.folder}: an aligner"

    def align(
        self,
        pairs: Iterable[Pair],
        *,
        by: str | None = None,
        threshold: float | None = None,
        path: bool = False,
        scores: bool = False,
    ) -> list[AlignedPair]:
        """Word links of every pair, each with its probability, and the matrix of all probabilities.

        Links are those above the aligner's own threshold, unless another is given. `scores` adds how well the two
        sides explain each other.
        """
        if by is not None or path:
            raise UserError(
                f"{self}, which has both directions at once; leave by and path to translation runs"
            )
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

    def score(self, pairs: Iterable[Pair], *, inference: str | None = None, seed: int = 0) -> list[float]:
        """How well the sides of every pair explain each other, per word; bad pairs come last."""
        if inference is not None:
            raise UserError(f"{self}, which has one way to score; leave inference to translation runs")
        return [found.score for found in self.aligner.align(pairs)]


def load(folder: str | Path | Sequence[str | Path], *, device: str | torch.device = "auto") -> Loaded:
    """A trained run of any task, or an aligner, from its folder alone; from a list of folders, runs that work together.

    `device` is auto (a GPU where there is one), cpu, cuda or mps; aligners compute on the CPU.

    Example:
        run = la.load("runs/variational", device="cpu")
        together = la.load(["runs/soft", "runs/variational"])
    """
    if isinstance(folder, str | Path):
        return load_one(folder, device=device)
    return load_together(folder, device=device)


def load_one(folder: str | Path, *, device: str | torch.device = "auto") -> Run | TrainedAligner:
    """What a single folder holds."""
    if is_aligner(Path(folder)):
        return TrainedAligner(Path(folder), Aligner.load(folder))
    return load_run(folder, device=device)
