"""Whether one system's BLEU is really above another's: paired bootstrap over sentences, by sacrebleu."""

from collections.abc import Mapping, Sequence
from typing import Any

SAMPLES = 1000


def paired_bootstrap(
    baseline: Sequence[str],
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    *,
    samples: int = SAMPLES,
) -> list[dict[str, Any]]:
    """Every system against the baseline, all on the same resampled test sets (Koehn 2004).

    `p` is the chance of a difference as large between systems that do not differ.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.significance import PairedTest

    named: list[tuple[str, Sequence[str]]] = [("baseline", list(baseline))]
    named += [(name, list(texts)) for name, texts in systems.items()]
    test = PairedTest(
        named, {"BLEU": BLEU()}, [list(references)], test_type="bs", n_samples=samples, n_jobs=1
    )
    _, found = test()  # the same resampled sets every time: sacrebleu seeds itself
    results: list[Any] = list(found["BLEU"])
    first, *others = results
    return [
        {
            "system": name,
            "bleu": round(float(result.score), 2),
            "difference": round(float(result.score - first.score), 2),
            "mean": round(float(result.mean), 2),
            "interval": round(float(result.ci), 2),
            # where scores are equal nothing is to be explained, though ties make sacrebleu call it a difference
            "p": 1.0 if result.score == first.score else round(float(result.p_value), 4),
            "samples": samples,
        }
        for name, result in zip(systems, others, strict=True)
    ]
