"""When a likelihood or a bound falls below the marginal's, by hand."""

import json

from latentalign.reports.paper.overtaking import history_of, overtakings
from latentalign.reports.paper.table_layouts import overtakings_table


def points(row, values, *, seed=1):
    """(update, NLL, negative bound or none) as validation leaves them."""
    return [
        {"row": row, "seed": seed, "step": step, "nll": nll} | ({} if bound is None else {"elbo": -bound})
        for step, nll, bound in values
    ]


MARGINAL = points("marginal", [(1, 4.0, None), (2, 3.0, None), (3, 2.0, None)])


def test_a_row_overtakes_when_it_stays_below():
    # below at 1, above at 2, below from 3 on; the marginal stopped at 3
    row = points("variational", [(1, 3.9, 4.5), (2, 3.1, 3.5), (3, 1.9, 2.1), (4, 1.8, 1.9)])
    (found,) = overtakings([*MARGINAL, *row])
    assert (found["likelihood"], found["bound"], found["last"]) == (3, 4, 4)
    assert found["gap"] == 0.1


def test_equal_is_not_below_and_the_end_decides():
    row = points("variational", [(1, 3.0, 3.5), (2, 2.5, 2.9), (3, 2.0, 2.3)])
    (found,) = overtakings([*row, *MARGINAL])
    assert (found["likelihood"], found["bound"]) == (None, None)
    (table,) = overtakings_table({"overtakings": [found]})
    assert "| variational | 1 | never | never | 3 | 0.300 |" in table.markdown()


def test_rows_without_a_bound_or_without_their_seed_s_marginal_say_nothing():
    soft, other = points("soft", [(1, 1.0, None)]), points("rws", [(1, 1.0, 1.0)], seed=2)
    assert overtakings([*MARGINAL, *soft, *other]) == []
    assert overtakings_table({"overtakings": []}) == []
    assert overtakings_table({}) == []  # a study from before validation was kept


def test_the_history_is_what_validation_wrote(tmp_path):
    records = [
        {"step": 5, "epoch": 1.0, "phase": "soft", "nll": 2.123456789, "ppl": 8.0},
        {"step": 10, "epoch": 2.0, "phase": "wake", "nll": 2.0, "elbo": -2.25, "ppl": 7.4},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert history_of(tmp_path) == [
        {"step": 5, "epoch": 1.0, "phase": "soft", "nll": 2.12346},
        {"step": 10, "epoch": 2.0, "phase": "wake", "nll": 2.0, "elbo": -2.25},
    ]
