# mypy: disable-error-code="type-abstract"
"""What `la.load` gives, whatever the folder holds: one set of verbs, and a line for what cannot be done."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from latentalign.errors import UserError
from latentalign.task import CanTranslate
from latentalign.training.loop.evaluation import BatchProgress, find_predictor

if TYPE_CHECKING:
    from latentalign.text.aligned_pair import AlignedPair
    from latentalign.text.parallel import Pair
    from latentalign.translation.translate import Translation, Translator


class Loaded(ABC):
    """A run (`Run`), an aligner (`TrainedAligner`) or runs that work together (`Ensemble`).

    The model and the recipe belong to a run alone: `assert isinstance(run, la.Run)` first.
    """

    has_own_links: ClassVar[bool] = True  # whether its translations come with links to the source words

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
        """The best translation of every line; with `alignments`, its links to the source words as well.

        For n-best lists and the penalties of the search: `run.translator(n_best=5, …).translate(lines)`.

        Example:
            for translation in run.translate(["ein hund bellt ."], beam=5, inference="kmax:5"):
                print(translation, translation.log_prob)
        """
        translator = self.translator(inference=inference, seed=seed, beam=beam)
        if isinstance(lines, str):
            raise UserError(
                f"translate: expected a list of sentences, received one text; write [{lines[:20]!r}]"
            )
        if alignments and not self.has_own_links:
            raise UserError(f"{self}, which has no links of its own; align its translations with an aligner")
        return [best[0] for best in translator.translate(lines, alignments=alignments)]

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

    def answer(
        self, question: str, *, inference: str = "exact", top: int = 5, seed: int = 0, **about: Any
    ) -> dict[str, Any]:
        """Answer a question about what the task takes: features= and image= (VQA), story= (memory)."""
        raise self._refuse("answer questions")

    def evaluate(
        self,
        *,
        inference: str | None = None,
        seed: int = 0,
        bleu: bool = False,
        errors: bool = False,
        beam: int = 10,
        progress: BatchProgress = lambda done, total: None,
        **data: Any,
    ) -> dict[str, Any]:
        """NLL, perplexity, entropy and the task's own measures on data of the task; of a run also bound and KL.

        The data are source= and target= (files) for translation, data= and split= for VQA and memory. With `bleu` a
        translation run also translates, and BLEU and chrF are given. With `errors` the likeliest output is searched,
        and the share of words and of phones in it that are wrong is given, in percent.

        Example:
            results = run.evaluate(source="test.de", target="test.en", bleu=True)
            print(results["ppl"], results["bleu"])
        """
        if inference is not None:
            find_predictor(inference)  # a mistake in it is found before the data are read
        if bleu or errors:
            self.able(CanTranslate)
        measures, used = self._measure(inference, seed, progress, data)
        return {
            **measures,
            **score_outputs(self, bleu=bleu, errors=errors, beam=beam, inference=used, **data),
        }

    def _measure(
        self, inference: str | None, seed: int, progress: BatchProgress, data: dict[str, Any]
    ) -> tuple[dict[str, Any], str | None]:
        """What `evaluate` says before anything is searched, and the prediction that the search is to use."""
        raise self._refuse("evaluate by these measures")

    def able(self, ability: type[Any]) -> Any:
        """The task, if it has this ability; else it is the user's mistake."""
        raise self._refuse(ability.verb)

    def _refuse(self, verb: str) -> UserError:
        return UserError(f"{self}, which does not {verb}; load a run of a task that does")


def score_outputs(
    run: Loaded, *, bleu: bool, errors: bool, beam: int, inference: str | None, **data: Any
) -> dict[str, Any]:
    """What `evaluate` says of the outputs that a run (or several together) searches for the sources of these data."""
    from latentalign.translation.bleu import score_texts
    from latentalign.translation.errors import error_rates

    if not bleu and not errors:
        return {}
    task = run.able(CanTranslate)
    sources, references = zip(*task.pairs(task.choose_data(**data)), strict=True)

    def outputs(**search: Any) -> list[str]:
        translator = run.translator(inference=inference, beam=beam, **search)
        return [found[0].text for found in translator.translate(sources)]

    scores = score_texts(outputs(), references) if bleu else {}
    # the likeliest output: penalties on lengths are there for translations
    rates = error_rates(outputs(length_penalty=0.0, eos_penalty=0.0), references) if errors else {}
    return {**scores, **rates}
