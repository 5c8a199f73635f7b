# mypy: disable-error-code="type-abstract"
"""A trained run and what it can do: one object for notebooks, the command line and the inspector."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from latentalign.alignment.prediction import Predictor
from latentalign.errors import UserError
from latentalign.task import Ability, CanAlign, CanAnswer, CanTranslate, Dataset, Task
from latentalign.text.parallel import check_pairs
from latentalign.training.devices import find_device
from latentalign.training.loaded import Loaded
from latentalign.training.loop.evaluation import (
    BatchProgress,
    evaluate_model,
    find_predictor,
    natural_inference,
)
from latentalign.training.recipe.recipes import Recipe
from latentalign.training.recipe.schedule import Schedule, schedule_of
from latentalign.training.run.config_file import load_config
from latentalign.training.run.marker import read_marker, verify_parts
from latentalign.training.run.weights import MODEL, load_weights
from latentalign.wordalign.folder import is_aligner

if TYPE_CHECKING:
    from latentalign.text.aligned_pair import AlignedPair
    from latentalign.translation.align import TranslationAligner
    from latentalign.translation.translate import Translator

Able = TypeVar("Able", bound=Ability)


@dataclass(frozen=True)
class Run(Loaded):
    """A trained run, ready to use: its recipe, task, assets (tokenizers and the like) and model.

    Example:
        run = la.load("runs/variational")
        print(run.device, *run.translate(["ein hund bellt ."]))
    """

    config: Recipe
    task: Task
    assets: Any
    model: Any
    folder: Path
    schedule: Schedule

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return next(iter(self.model.parameters())).device

    @property
    def runs(self) -> "tuple[Run, ...]":
        """The runs that work together: this one alone."""
        return (self,)

    def __str__(self) -> str:
        return f"{self.folder}: a run of task {self.task.name}"

    def able(self, ability: type[Able]) -> Able:
        """The run's task as one that has this ability; a run that has not is the user's mistake."""
        if not isinstance(self.task, ability):
            raise UserError(f"{self} does not {ability.verb}")
        return self.task

    def translator(
        self, *, inference: str | None = None, batch_size: int = 64, seed: int = 0, **search: Any
    ) -> "Translator":
        """What translates with this run; `search` may hold beam, n_best and the penalties of `SearchOptions`.

        It predicts as the run was trained to, unless another `inference` is named.
        """
        task = self.able(CanTranslate)
        found: Translator = task.translator(
            self.model,
            self.assets,
            predictor=self.predictor(inference),
            batch_size=batch_size,
            seed=seed,
            **search,
        )
        return found

    def aligner(self) -> "TranslationAligner":
        """What aligns sentence pairs with this run."""
        found: TranslationAligner = self.able(CanAlign).aligner(self.model, self.assets)
        return found

    def align(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        by: str | None = None,
        threshold: float | None = None,
        path: bool = False,
        scores: bool = False,
    ) -> "list[AlignedPair]":
        """Word links of every pair, each with its probability, and the matrix they come from.

        `by` names the distribution: exact (Bayes' rule), posterior (the inference network) or prior; unless it is
        given, the first of these that the run has. Links are the best of each target word, or with a `threshold`
        all of at least this probability, or with `path` those of the likeliest alignment of the whole pair. `scores`
        adds the mean log-probability per target piece.

        Example:
            for pair in run.align([("ein hund bellt .", "a dog barks .")]):
                print(pair, pair.links, pair.probs.shape)
        """
        from latentalign.text.aligned_pair import AlignedPair
        from latentalign.text.symmetrise import decode_links

        aligner = self.aligner()
        chosen = self.choose_links("exact" if path else by)
        results = []
        for found in aligner.align(check_pairs(pairs), exact=chosen == "exact", score=scores):
            probs = found.probs(chosen)
            links = found.path_links() if path else decode_links(probs, threshold=threshold)
            results.append(AlignedPair(found.source_words, found.target_words, links, probs, found.score))
        return results

    def choose_links(self, by: str | None = None) -> str:
        """The distribution that links come from: see `align`."""
        try:
            return self.aligner().choose(by)
        except UserError as error:
            raise UserError(f"{self.folder}: {error}") from None

    def score(
        self, pairs: Iterable[tuple[str, str]], *, inference: str | None = None, seed: int = 0
    ) -> list[float]:
        """How likely every pair is: the mean log-probability of a target piece; bad pairs come last.

        Unless an `inference` is named, it is the marginal over the alignment, as `align(scores=True)` gives it.

        Example:
            pairs = [("ein hund bellt .", "a dog barks ."), ("ein hund bellt .", "two children play")]
            for score, pair in sorted(zip(run.score(pairs), pairs)):
                print(score, pair)
        """
        pairs = check_pairs(pairs)
        if inference is not None:
            return self.aligner().score(pairs, self.predictor(inference), seed=seed)
        scores = [found.score for found in self.aligner().align(pairs, score=True)]
        return [score for score in scores if score is not None]  # all: they were asked for

    def answer(
        self, question: str, *, inference: str | None = None, top: int = 5, seed: int = 0, **about: Any
    ) -> dict[str, Any]:
        """Answer a question about what the task takes: features= and image= (VQA), story= (memory).

        With a known answer= the posterior is shown, too. It predicts as the run was trained to, unless another
        `inference` is named.

        Example:
            found = la.load("runs/memory").answer("where is mary ?", story=["mary went home"])
            print(found["answers"][0]["answer"], found["evidence"])
        """
        task = self.able(CanAnswer)
        given = {name: value for name, value in about.items() if value is not None}
        with torch.no_grad():
            return task.answer(
                self.model,
                self.assets,
                {"question": question, **given},
                predictor=self.predictor(inference),
                top=top,
                generator=torch.Generator(self.device).manual_seed(seed),
            )

    def dataset(self, **data: Any) -> Dataset:
        """Data of the task: source= and target= (files) for translation, data= and split= for VQA and memory."""
        return self.task.dataset(self.assets, self.task.choose_data(**data))

    def _measure(
        self, inference: str | None, seed: int, progress: BatchProgress, data: dict[str, Any]
    ) -> tuple[dict[str, Any], str]:
        dataset = self.dataset(**data)
        if not len(dataset):
            raise UserError("evaluate: the data hold no examples; expected at least one")
        if inference is None:
            inference = self.config.training.inference or self.natural_inference
        results = evaluate_model(
            self.model,
            dataset,
            inference,
            device=self.device,
            seed=seed,
            with_posterior=self.schedule.needs_posterior,
            progress=progress,
        )
        return {"task": self.task.name, **results, **self.task.remarks(dataset)}, inference

    @property
    def natural_inference(self) -> str:
        """How the run predicts unless another way is named: as its last objective does."""
        return natural_inference(self.schedule, self.model.example_prior())

    def predictor(self, inference: str | None = None) -> Predictor:
        """The way to predict of that name, if it fits the run; its natural one unless given."""
        prior = self.model.example_prior()
        chosen = inference or self.natural_inference
        predictor = find_predictor(chosen)
        if predictor.needs_discrete and not prior.is_discrete:
            raise UserError(
                f"inference: {chosen} needs a discrete alignment, this run's is {prior.family}; "
                f"try {self.natural_inference}"
            )
        return predictor


def load(folder: str | Path, *, device: str | torch.device = "auto") -> Run:
    """A trained run from its folder alone, whatever its task.

    `device` is auto (a GPU where there is one), cpu, cuda or mps.
    """
    folder = Path(folder)
    if is_aligner(folder):
        raise UserError(
            f"{folder}: expected a trained run, found an aligner; use it with align, plot, serve or translate --aligner"
        )
    place = find_device(device)
    recipe = load_config(folder)
    schedule = schedule_of(recipe)
    if not (folder / MODEL).is_file():
        raise UserError(
            f"{folder}: the run has no {MODEL}; train it to its first validation: latentalign train --resume {folder}"
        )
    if (marker := read_marker(folder)) is not None:
        verify_parts(folder, marker, recipe.resolved())
    try:
        assets = recipe.task.load_assets(folder)
    except FileNotFoundError as error:
        raise UserError(f"{folder}: the run folder is not complete, {error.filename} is missing") from None
    model: Any = recipe.task.build_model(recipe.model, assets, needs_posterior=schedule.needs_posterior)
    load_weights(model, folder)
    model.to(place)
    model.eval()
    return Run(recipe, recipe.task, assets, model, folder, schedule)


def train(
    recipe: str | Path | None = None,
    *,
    out: str | Path | None = None,
    set: Mapping[str, Any] | Iterable[str] = (),  # the word of the command line
    resume: str | Path | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> Run:
    """Train a recipe (a YAML file or the name of a packaged one) into a run folder, and load what came of it.

    `set` changes values of the recipe: {"training.epochs": 3}. `resume` goes on with a run that was begun.

    Example:
        run = la.train("recipe.yaml", out="runs/short", set={"training.epochs": 0.5})
        print(run.evaluate(source="test.de", target="test.en")["ppl"])
    """
    from latentalign.training.run.choosing import choose_run
    from latentalign.training.train import train as fit

    chosen, folder = choose_run(recipe, out=out, resume=resume, settings=set, overwrite=overwrite)
    fit(chosen, folder, resume=resume is not None, overwrite=overwrite, echo=not quiet)
    return load(folder)
