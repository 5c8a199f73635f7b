"""Translators and aligners in one table."""

import json

from benchmarks.europarl import page, rows_of_aligners

RATES = {"aer": 0.25, "precision": 0.8, "recall": 0.7}


def test_aligners_are_taken_with_the_most_pairs(tmp_path):
    few = {"rows": [{"system": "ours", "seconds": 6.0, "rates": {"mean": {**RATES, "aer": 0.5}}}]}
    many = {"rows": [{"system": "ours", "seconds": 90.0, "rates": {"mean": RATES, "forward": RATES}}]}
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"sizes": {"900": few, "1000": many}}), encoding="utf-8")
    rows = rows_of_aligners(path)
    assert [(row["by"], row["aer"], row["minutes"]) for row in rows] == [
        ("mean", 0.25, 1.5),
        ("forward", 0.25, 1.5),
    ]


def test_the_table_has_translators_and_aligners():
    translator = {"model": "chain", "by": "exact", **RATES, "valid_ppl": 39.368, "minutes": 36.6}
    aligner = {"model": "ours, aligner", "by": "mean", **RATES, "minutes": 1.1}
    lines = page([translator, aligner]).splitlines()
    assert "| chain | exact | 0.250 | 0.800 | 0.700 | 39.37 | 37 |" in lines
    assert "| ours, aligner | mean | 0.250 | 0.800 | 0.700 | – | 1 |" in lines
