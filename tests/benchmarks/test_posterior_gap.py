"""The measured gaps: none for the exact posterior and for a shortlist of all words."""

from benchmarks.posterior_gap import SHORTLISTS, measure

from latentalign.translation.data.dataset import make_batch
from latentalign.translation.network.model import TranslationModel


def test_gaps_of_every_way_to_find_q(random_translator: TranslationModel) -> None:
    found = measure(random_translator, [make_batch([[4, 5, 6, 7], [6, 7, 9]], [[8, 9, 10], [5, 20]])])
    gaps = {name: row["nats"] for name, row in found.items()}
    assert set(gaps) == {
        "prior",
        "inference network",
        "exact",
        *(f"shortlist of {size}" for size in SHORTLISTS),
    }
    assert gaps["exact"] == gaps["shortlist of 64"] == gaps["shortlist of 256"] == 0
    assert gaps["prior"] > gaps["shortlist of 16"] > 0
