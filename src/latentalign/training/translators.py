"""From a trained run to what translates or aligns: shared by commands, reports and the inspector."""

from pathlib import Path

from latentalign.errors import UserError
from latentalign.training.loop.evaluation import find_predictor, natural_inference
from latentalign.training.run.loading import Run, load_run
from latentalign.translation.align import Aligner
from latentalign.translation.search import SearchOptions
from latentalign.translation.translate import Translator


def load_translation_run(folder: str | Path) -> Run:
    """A run of the translation task; another task's is the user's mistake."""
    run = load_run(folder)
    if run.task.name != "translation":
        raise UserError(f"{folder}: expected a translation run, found one of task {run.task.name}")
    return run


def translator_for(
    run: Run,
    *,
    options: SearchOptions | None = None,
    inference: str | None = None,
    batch_size: int = 64,
    seed: int = 0,
) -> Translator:
    """Translate as the run was trained to predict, unless another inference is named."""
    prior = run.model.example_prior()
    natural = natural_inference(run.schedule, prior)
    chosen = inference or natural
    predictor = find_predictor(chosen)
    if predictor.needs_discrete and not prior.is_discrete:
        raise UserError(
            f"inference: {chosen} needs a discrete alignment, this run's is {prior.family}; try {natural}"
        )
    return Translator(
        run.model, run.assets, options=options, predictor=predictor, batch_size=batch_size, seed=seed
    )


def aligner_for(run: Run, by: str | None = None) -> tuple[Aligner, str]:
    """An aligner and the links it gives: those asked for, or the best that it has."""
    aligner = Aligner(run.model, run.assets)
    chosen = by or aligner.best
    try:
        aligner.check(chosen)
    except UserError as error:
        raise UserError(f"{run.folder}: {error}") from None
    return aligner, chosen
