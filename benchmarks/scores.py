"""By how much the printed scores differ from the exact ones: `translate --scores` and `align --scores`.

python -m benchmarks.scores RUN --source test.de --target test.en [--pairs 200] [--beam 10] [--json FILE]

The search estimates positions that cannot matter, and `align` leaves out positions that cannot reach 1e-4 of the
probability. Here every position of every piece is summed for the same pieces. An error is exact minus printed, in nats:
of a translation's log-probability, and of a pair's mean log-probability per piece.
"""

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import latentalign as la
from latentalign.alignment.prediction import Exact
from latentalign.files import to_json, write_atomic
from latentalign.text.parallel import Pair, read_parallel
from latentalign.translation.data.dataset import make_batch
from latentalign.translation.data.tokenizer import END


def translation_errors(run: Any, sentences: Sequence[str], *, beam: int) -> list[float]:
    """Of the best translation of every sentence, in nats a translation."""
    found = run.translate(sentences, beam=beam, inference="exact")
    errors = []
    for sentence, translation in zip(sentences, found, strict=True):
        if sentence.split():
            source, _ = run.assets.encode_source(sentence)
            errors.append(_log_prob(run, source, [*translation.pieces, END]) - translation.log_prob)
    return errors


def pair_errors(run: Any, pairs: Sequence[Pair]) -> list[float]:
    """Of the score of every pair, in nats a target piece."""
    errors = []
    for (source, target), found in zip(pairs, run.align(pairs, scores=True), strict=True):
        pieces, _ = run.assets.encode_target(target)
        left, _ = run.assets.encode_source(source)
        errors.append(_log_prob(run, left, pieces) / len(pieces) - found.score)
    return errors


@torch.no_grad()
def _log_prob(run: Any, source: Sequence[int], target: Sequence[int]) -> float:
    """log p(y|x) with every position of every piece."""
    problem = run.model.problem(make_batch([source], [target]).to(run.device))
    return float(Exact().log_likelihood(problem.prior, problem.likelihood).double().sum())


def summary(errors: Sequence[float]) -> dict[str, float]:
    return {
        "count": len(errors),
        "mean": statistics.fmean(errors),
        "most": max(errors),
        "least": min(errors),
        "mean of sizes": statistics.fmean(map(abs, errors)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--beam", type=int, default=10)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    run = la.load(asked.run, device="cpu")
    pairs = [pair for pair in read_parallel(asked.source, asked.target) if all(pair)][: asked.pairs]
    found = {
        "translate --scores": summary(translation_errors(run, [left for left, _ in pairs], beam=asked.beam)),
        "align --scores": summary(pair_errors(run, pairs)),
    }
    text = to_json(found, indent=1) + "\n"
    print(text, end="")
    if asked.json is not None:
        write_atomic(asked.json, text)


if __name__ == "__main__":
    main()
