"""JSON that every reader takes."""

import json
import math

from latentalign.files import to_json


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def test_numbers_that_are_not_finite_become_null() -> None:
    value = {"ppl": math.inf, "rows": [{"nll": math.nan}, (-math.inf, 1.5)], "count": 3, "name": "ß"}
    text = to_json(value)
    assert json.loads(text, parse_constant=refuse) == {
        "ppl": None, "rows": [{"nll": None}, [None, 1.5]], "count": 3, "name": "ß"
    }  # fmt: skip
    assert "ß" in text
