"""The measured variances: smaller with more samples, and means over the batches."""

import pytest
from benchmarks.gradient_variance import COMPARED, measure, table

from latentalign.translation.data.dataset import make_batch
from latentalign.translation.network.model import TranslationModel

FIRST = make_batch([[4, 5, 6, 7], [6, 7, 9]], [[8, 9, 10], [5, 20]])
SECOND = make_batch([[9, 5]], [[11]])


def test_more_samples_have_less_variance(random_translator: TranslationModel) -> None:
    found = measure(random_translator, [FIRST], draws=60)
    variance = {
        (row["target"], row["estimator"], row["parameters"]): row["relative_variance"]
        for row in found["gradients"]
    }
    two, five = (
        variance["variational", f"{count}, leave one out", "phi"] for count in ("2 samples", "5 samples")
    )
    assert two > five > 0
    assert 0 < variance["em", "1 sample", "theta"] < float("inf")
    text = table({"run": "one", "epochs": 12.0, **found})
    assert text.count("\n| variational") == len(COMPARED) - 1
    assert "\n| em, 1 sample | " in text


def test_variances_are_means_over_the_batches(random_translator: TranslationModel) -> None:
    alone = [measure(random_translator, [batch], draws=3)["gradients"] for batch in (FIRST, SECOND)]
    both = measure(random_translator, [FIRST, SECOND], draws=3)["gradients"]
    for row, one, other in zip(both, *alone, strict=True):
        mean = (one["relative_variance"] + other["relative_variance"]) / 2
        assert row["relative_variance"] == pytest.approx(mean)
