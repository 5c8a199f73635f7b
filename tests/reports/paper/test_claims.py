"""Where the order of rows agrees with the paper."""

from latentalign.reports.paper.claims import kmax_claims, order_claims
from latentalign.reports.paper.published import TRANSLATION, VQA, published


def summary_of(figures):
    return [{"row": name, **values} for name, values in figures.items()]


def test_the_published_figures_agree_with_themselves():
    for task, table, figures in (("translation", "table1", TRANSLATION), ("vqa", "table1", VQA)):
        claims = order_claims(task, table, summary_of(figures))
        assert len(claims) >= 11
        assert all(claim["agrees"] for claim in claims), [c["claim"] for c in claims if not c["agrees"]]
        assert all(claim["published"] == claim["ours"] for claim in claims)
    third = order_claims("translation", "table3", summary_of(TRANSLATION))
    known = [claim["agrees"] for claim in third if claim["agrees"] is not None]
    assert len(known) >= 2
    assert all(known)


def test_a_row_in_another_order_and_a_row_that_is_missing():
    figures = {name: dict(values) for name, values in TRANSLATION.items() if name != "relaxed"}
    figures["soft"]["ppl"] = 6.0
    claims = {claim["claim"]: claim for claim in order_claims("translation", "table1", summary_of(figures))}
    wrong = claims["PPL: soft > marginal"]
    assert wrong["agrees"] is False
    assert wrong["ours"] == [6.0, 6.34]
    assert wrong["published"] == [7.17, 6.34]
    assert claims["PPL: relaxed > soft"]["agrees"] is None


def test_a_difference_within_the_seeds_is_not_clear():
    soft = {"row": "soft", "ppl": 7.0, "ppl_deviation": 0.4}
    claims = order_claims(
        "translation", "table1", [soft, {"row": "marginal", "ppl": 6.5, "ppl_deviation": 0.1}]
    )
    assert (claims[0]["agrees"], claims[0]["clear"]) == (True, False)
    claims = order_claims("translation", "table1", [soft, {"row": "marginal", "ppl": 6.0}])
    assert claims[0]["clear"] is True
    claims = order_claims(
        "translation", "table1", [{"row": "soft", "ppl": 7.0}, {"row": "marginal", "ppl": 6.0}]
    )
    assert claims[0]["clear"] is None


def curve(row, values, seed=1):
    points = [{"inference": f"kmax:{k}", "ppl": ppl} for k, ppl in enumerate(values[:-1], start=1)]
    points.append({"inference": "exact", "ppl": values[-1]})
    return [{"row": row, "seed": seed, **point} for point in points]


def test_kmax_is_close_on_the_mean_over_seeds():
    points = curve("marginal", [9, 8, 7, 6.9, 6.9, 6.34]) + curve(
        "marginal", [9, 8, 7, 7.1, 6.96, 6.34], seed=2
    )
    close, more = kmax_claims(points)
    assert close["agrees"]
    assert close["ours"] == [6.93, 6.34]
    assert close["published"] == [6.90, 6.34]
    assert more["agrees"]
    far, _ = kmax_claims(curve("marginal", [9, 8, 8, 8, 8, 7]))
    assert not far["agrees"]
    (only,) = kmax_claims(curve("hard-sample", [7, 7, 7, 7, 7, 7]))  # one position may be enough for hard
    assert only["agrees"]


def test_published_figures_by_inference():
    assert published("translation", "marginal", "kmax:5") == {"ppl": 6.90, "bleu": 33.31}
    assert published("translation", "marginal", "kmax:3") == {}
    assert published("translation", "marginal", "exact") == {
        "ppl": 6.34,
        "bleu": 33.29,
        "prior_entropy": 0.82,
    }
    assert published("translation", "svi") == {}
    assert published("memory", "soft") == {}
