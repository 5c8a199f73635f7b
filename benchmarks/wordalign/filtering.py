"""Bad pairs among good ones: the score of a pair by an aligner, beside that of a translator."""

import json
from pathlib import Path
from typing import Any

import latentalign as la
from benchmarks.wordalign.corpus import Pair
from benchmarks.wordalign.measures import area_under_roc
from latentalign.text.parallel import read_parallel
from latentalign.wordalign.aligner import Aligner
from latentalign.wordalign.settings import Settings

MIXED = 1000  # pairs, of which a tenth get the target of another


def mixed(pairs: list[Pair]) -> tuple[list[Pair], list[Pair]]:
    """Good pairs, and bad ones, each with the target of the next."""
    count = len(pairs) // 10
    targets = [pair[1] for pair in pairs[:count]]
    return pairs[count:], [(pairs[n][0], targets[(n + 1) % count]) for n in range(count)]


def filter_by_aligner(pairs: list[Pair], learnt: int) -> float:
    """The area under the ROC curve on pairs that an aligner of `learnt` others has not seen."""
    aligner = Aligner.fit(pairs[:learnt])
    good, bad = mixed(pairs[learnt : learnt + MIXED])
    return area_under_roc(*([found.score for found in aligner.align(part)] for part in (good, bad)))


def filter_beside_translator(run: Path, data: Path) -> dict[str, Any]:
    """Both learnt from the training pairs of Multi30k; its 1,000 test pairs are mixed."""
    train = list(read_parallel(data / "train.de.gz", data / "train.en.gz"))
    test = list(read_parallel(data / "test_2016_flickr.de.gz", data / "test_2016_flickr.en.gz"))
    aligner = Aligner.fit(train, Settings(tokenise=True))
    translator = la.load(run)
    assert isinstance(translator, la.Run)
    good, bad = mixed(test)
    return {
        "pairs": len(train),
        "aligner": area_under_roc(*([found.score for found in aligner.align(part)] for part in (good, bad))),
        "translator": area_under_roc(*(translator.score(part) for part in (good, bad))),
        "epochs": json.loads((run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])["epoch"],
    }
