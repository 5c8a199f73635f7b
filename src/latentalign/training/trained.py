"""What `la.load` gives, whatever the folder holds: one set of verbs, and a line for what cannot be done."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from latentalign.errors import UserError

if TYPE_CHECKING:
    from latentalign.text.aligned_pair import AlignedPair
    from latentalign.text.parallel import Pair
    from latentalign.translation.translate import Translation, Translator


class Trained(ABC):
    """A run (`Run`), an aligner (`TrainedAligner`) or runs that work together (`Ensemble`).

    Whoever needs the model or the recipe of a run asks for them by type: `assert isinstance(run, la.Run)`.
    """

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where it computes."""

    @abstractmethod
    def __str__(self) -> str:
        """What it is, for error messages: ``runs/aligner: an aligner``."""

    def translate(
        self,
        lines: Sequence[str],
        *,
        beam: int = 10,
        inference: str | None = None,
        alignments: bool = False,
        seed: int = 0,
    ) -> "list[Translation]":
        """The best translation of every line; with `alignments`, its links to the source words as well."""
        raise self._refuse("translate")

    def translator(
        self, *, inference: str | None = None, batch_size: int = 64, seed: int = 0, **search: Any
    ) -> "Translator":
        """What translates, with n-best lists and the penalties of the search."""
        raise self._refuse("translate")

    def align(
        self,
        pairs: "Iterable[Pair]",
        *,
        by: str | None = None,
        threshold: float | None = None,
        path: bool = False,
        scores: bool = False,
    ) -> "list[AlignedPair]":
        """Word links of every pair, each with its probability, and the matrix they come from."""
        raise self._refuse("align")

    def score(self, pairs: "Iterable[Pair]", *, inference: str | None = None, seed: int = 0) -> list[float]:
        """How likely every pair is; bad pairs come last."""
        raise self._refuse("score pairs")

    def answer(self, question: str, **options: Any) -> dict[str, Any]:
        """Answer a question."""
        raise self._refuse("answer questions")

    def evaluate(self, **options: Any) -> dict[str, Any]:
        """Measures on data of the task."""
        raise self._refuse("evaluate by these measures")

    def _refuse(self, verb: str) -> UserError:
        return UserError(f"{self}, which does not {verb}; load a run of a task that does")
