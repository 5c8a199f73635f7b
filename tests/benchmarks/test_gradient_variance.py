"""The measured variances: of the estimator alone, and smaller with more samples."""

from benchmarks.gradient_variance import COMPARED, batch_of, table

from latentalign.reports.paper.gradient_quality import gradient_quality
from latentalign.translation.data.dataset import make_batch
from latentalign.translation.network.model import TranslationModel


class Pairs:
    """Three pairs with 3, 3 and 3 outputs (their end marks count)."""

    def __len__(self) -> int:
        return 3

    def collate(self, indices: list[int]) -> object:
        return make_batch([[4, 5, 6, 7]] * len(indices), [[8, 9]] * len(indices))


def test_a_batch_has_the_outputs_asked_for_or_all_there_are() -> None:
    assert batch_of(Pairs(), 4).source.shape[0] == 2
    assert batch_of(Pairs(), 100).source.shape[0] == 3


def test_more_samples_have_less_variance(random_translator: TranslationModel) -> None:
    batch = make_batch([[4, 5, 6, 7], [6, 7, 9]], [[8, 9, 10], [5, 20]])
    rows = gradient_quality(random_translator, batch, repeats=60, compared=COMPARED)
    variance = {
        (row["target"], row["estimator"], row["parameters"]): row["relative_variance"] for row in rows
    }
    two, five = (
        variance["variational", f"{count}, leave one out", "phi"] for count in ("2 samples", "5 samples")
    )
    assert two > five > 0
    assert 0 < variance["em", "1 sample", "theta"] < float("inf")
    text = table({"run": "one", "epoch": 12.0, "gradients": rows})
    assert "| em, 1 sample |" in text
    assert text.count("\n| variational") == 4
