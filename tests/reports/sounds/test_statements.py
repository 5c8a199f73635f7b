"""Statements over languages against their formulas."""

import math

import pytest

from latentalign.reports.sounds.statements import check_statements, paired_differences, paired_test


def row(language, name, seed, nll, size="medium"):
    return {"language": language, "size": size, "row": name, "seed": seed, "nll": nll}


ROWS = [
    row("dut", "soft", 1, 0.5), row("dut", "soft", 2, 0.9), row("dut", "marginal", 1, 0.3),
    row("fre", "soft", 1, 0.4), row("fre", "marginal", 1, 0.5), row("hun", "soft", 1, 0.1),
]  # fmt: skip


def test_only_languages_and_seeds_that_both_rows_have_are_compared():
    assert paired_differences(ROWS, "nll", "soft", "marginal") == pytest.approx([0.2, -0.1])


def test_the_sign_test_and_the_interval_are_those_of_the_textbook():
    differences = [0.3, 0.1, 0.2, 0.0, 0.4, -0.1]
    found = paired_test(differences)
    # four of five that are not ties: both tails of a fair coin
    tail = sum(math.comb(5, k) for k in (4, 5)) / 2**5
    assert found["p"] == pytest.approx(2 * tail)
    assert (found["holds_in"], found["ties"], found["languages"]) == (4, 1, 6)
    mean = sum(differences) / 6
    deviation = math.sqrt(sum((one - mean) ** 2 for one in differences) / 5)
    half = 2.5706 * deviation / math.sqrt(6)  # t with five degrees of freedom
    assert found["interval"] == pytest.approx([mean - half, mean + half], abs=1e-4)
    assert found["verdict"] == "open"


@pytest.mark.parametrize(("sign", "verdict"), [(1, "holds"), (-1, "the reverse holds")])
def test_an_interval_on_one_side_of_zero_decides(sign, verdict):
    assert paired_test([sign * 0.30, sign * 0.31, sign * 0.29])["verdict"] == verdict


def test_a_statement_without_data_is_left_out():
    assert [one["statement"] for one in check_statements(ROWS)] == ["NLL: soft > marginal"]
    assert check_statements([]) == []


def test_languages_of_different_sizes_are_not_mixed():
    few = [row("ady", name, 1, nll, size="low") for name, nll in (("soft", 0.7), ("marginal", 0.9))]
    found = {one["size"]: one for one in check_statements([*ROWS, *few])}
    assert [(size, one["languages"], one["holds_in"]) for size, one in found.items()] == [
        ("medium", 2, 1),
        ("low", 1, 0),
    ]


def test_one_language_proves_nothing():
    assert paired_test([0.5])["interval"] is None
    assert paired_test([0.5])["verdict"] == "open"
