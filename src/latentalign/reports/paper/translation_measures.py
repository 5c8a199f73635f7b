"""What a table says of a trained translation model: perplexity, BLEU, the curve over K, cost."""

import math
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

import latentalign
from latentalign.alignment.likelihoods.likelihood import TableLikelihood
from latentalign.alignment.prediction import Exact, KMax
from latentalign.files import read_lines, write_atomic
from latentalign.reports.grid.cells import Cell
from latentalign.reports.grid.grid import Grid
from latentalign.reports.provenance import fingerprint_of, recipe_values, revision_of_run
from latentalign.training.loop.evaluation import evaluate_model
from latentalign.training.run.journal import epoch_of_weights, read_metrics
from latentalign.training.trained_run import Run, load
from latentalign.translation.bleu import score_texts

LARGEST_K = 10


class Measured:
    """A finished translation run with its test set; every measurement is taken once and kept."""

    def __init__(self, grid: Grid, cell: Cell, folder: Path) -> None:
        self.grid, self.cell, self.folder = grid, cell, folder

    @cached_property
    def run(self) -> Run:
        return load(self.folder)

    @cached_property
    def _dataset(self) -> Any:
        return self.run.dataset(**self.grid.settings.test)

    @cached_property
    def inference(self) -> str:
        """How the paper tests this row: soft as it is trained, relaxed by samples, the rest exactly."""
        prior = self.run.model.example_prior()
        if not prior.is_discrete:
            return f"sample:{self.grid.settings.samples}"
        return self.run.natural_inference

    def perplexity(self, inference: str) -> dict[str, Any]:
        """What `evaluate` says, with the bound only if the inference network was trained."""
        trained = any(phase.needs_posterior and phase.trains_phi for phase in self.run.schedule.reached)
        found = evaluate_model(self.run.model, self._dataset, inference, with_posterior=trained)
        return {**found, "seconds": round(found["seconds"], 2)}

    def bleu(self, inference: str) -> dict[str, Any]:
        """BLEU and chrF of the test set; the translations are kept for the paired tests."""
        settings = self.grid.settings
        sources, references = (list(read_lines(settings.test[side])) for side in ("source", "target"))
        translator = self.run.translator(beam=settings.beam, inference=inference)
        texts = [found[0].text for found in translator.translate(sources)]
        write_atomic(hypotheses_path(self.grid, self.cell, inference), "".join(f"{text}\n" for text in texts))
        return score_texts(texts, references)

    @torch.no_grad()
    def curve(self) -> dict[str, Any]:
        """Perplexity with K = 1…10 positions and with all, from one table of log f a batch."""
        predictors = {f"kmax:{k}": KMax(k) for k in range(1, LARGEST_K + 1)} | {"exact": Exact()}
        lost = dict.fromkeys(predictors, 0.0)
        outputs = 0.0
        for indices in self._dataset.plan(-1, 0):
            problem = self.run.model.problem(self._dataset.collate(indices))
            table = TableLikelihood(problem.likelihood.everywhere(problem.prior.support))
            weights = problem.weights.double()  # [B,T]
            outputs += float(weights.sum())
            for name, predictor in predictors.items():
                log_p = predictor.log_likelihood(problem.prior, table)
                lost[name] -= float((log_p.double() * weights).sum())
        return {
            "curve": [{"inference": name, "ppl": math.exp(nats / outputs)} for name, nats in lost.items()]
        }

    def row(self, inference: str) -> dict[str, Any]:
        """A row of a table under one inference."""
        name = inference.replace(":", "")
        found = self.grid.remember(self.cell, f"perplexity-{name}", lambda: self.perplexity(inference))
        score = self.grid.remember(self.cell, f"bleu-{name}", lambda: self.bleu(inference))
        row = describe(self.grid, self.cell, self.folder)
        row |= {"inference": inference, "ppl": _rounded(found["ppl"]), "bleu": _rounded(score["bleu"], 2)}
        row |= {"prior_entropy": _rounded(found["prior_entropy"]), "nll": _rounded(found["nll"], 5)}
        row |= {key: _rounded(found[key]) for key in ("elbo", "kl") if key in found}
        row |= {"chrf": _rounded(score["chrf"], 2), "bleu_signature": score["bleu_signature"]}
        row |= {"beam": self.grid.settings.beam, "tokens": found["tokens"], "examples": found["examples"]}
        return row


def describe(grid: Grid, cell: Cell, folder: Path) -> dict[str, Any]:
    """What any row says about its training; nothing in it depends on where the folders are."""
    records = read_metrics(folder / "metrics.jsonl")
    return {
        "row": cell.spec.name,
        "objective": cell.spec.objective,
        "estimator": cell.spec.estimator,
        **cell.spec.labels,
        "seed": cell.seed,
        "minutes": round(records[-1]["training_seconds"] / 60, 2),
        "epochs": records[-1]["epoch"],
        "best_epoch": epoch_of_weights(records),
        "recipe": grid.settings.recipe_name,
        "settings": list(grid.settings.changes),
        "changes": cell.changes,
        "version": latentalign.__version__,
        "revision": revision_of_run(folder),
        "fingerprint": fingerprint_of(recipe_values(cell.recipe)),
    }


def hypotheses_path(grid: Grid, cell: Cell, inference: str) -> Path:
    """Where the translations of the test set are kept."""
    return grid.results(cell) / f"translations-{inference.replace(':', '')}.txt"


def _rounded(value: float, digits: int = 4) -> float:
    return round(float(value), digits)
