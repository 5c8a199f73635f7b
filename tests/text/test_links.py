"""Pharaoh text, symmetrisation by hand-worked examples, and the alignment error rate by its formula."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentalign.errors import UserError
from latentalign.text.links import (
    Links,
    check_links,
    format_links,
    parse_links,
    read_links,
    score_links,
)
from latentalign.text.symmetrise import grow_diag_final_and, intersection, symmetrisation, union

link_sets = st.frozensets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12)


def test_sure_possible_and_probable_links_are_read():
    links = parse_links("0-0 2?1 3p4 5-6:0.25\t-1.37", place="f, line 1")
    assert links.sure == {(0, 0), (5, 6)}
    assert links.possible == {(2, 1), (3, 4)}
    assert links.probs == {(5, 6): 0.25}
    assert links.all == {(0, 0), (5, 6), (2, 1), (3, 4)}


def test_a_link_that_is_sure_and_possible_is_sure():
    links = parse_links("1?1 1-1", place="f")
    assert (links.sure, links.possible) == ({(1, 1)}, frozenset())


def test_links_are_written_source_first_and_in_order():
    assert format_links({(10, 0), (2, 3), (2, 1)}) == "2-1 2-3 10-0"
    assert format_links({(0, 1)}, probs={(0, 1): 0.934}) == "0-1:0.93"
    assert format_links({(0, 1)}, probs={(0, 1): 0.00051}) == "0-1:5.1e-04"
    assert format_links([]) == ""


@given(link_sets)
def test_writing_and_reading_give_the_same_links(links):
    assert parse_links(format_links(links), place="f").sure == links
    scored = format_links(links, probs=dict.fromkeys(links, 0.5))
    assert parse_links(scored, place="f").sure == links


@pytest.mark.parametrize("text", ["0-", "a-1", "0-0 1--2", "0:1", "1-2:1.5", "1-2:x", "-1-2"])
def test_what_is_no_link_is_refused_with_its_place(text):
    with pytest.raises(UserError, match=r"links\.txt, line 7"):
        parse_links(text, place="links.txt, line 7")


def test_the_line_of_a_bad_link_is_named(tmp_path):
    path = tmp_path / "links.txt"
    path.write_text("0-0\n\n1+2\n")
    with pytest.raises(UserError, match=r"links.txt, line 3: .*'1\+2'"):
        list(read_links(path))


def test_a_link_outside_its_sentences_is_refused():
    links = parse_links("0-0 3-1", place="f")
    check_links(links, 4, 2, place="f")
    with pytest.raises(UserError, match="f, line 2: link 3-1 does not fit a pair of 3 source and 2 target"):
        check_links(links, 3, 2, place="f, line 2")
    with pytest.raises(UserError, match="3-1"):
        check_links(parse_links("3?1", place="f"), 4, 1, place="f")


# One pair worked through on paper. Forward: 0-0 1-1 2-1 3-4; backward: 0-0 1-1 2-2 3-3 5-5 6-4.
FORWARD = frozenset({(0, 0), (1, 1), (2, 1), (3, 4)})
BACKWARD = frozenset({(0, 0), (1, 1), (2, 2), (3, 3), (5, 5), (6, 4)})


def test_intersection_and_union():
    assert intersection(FORWARD, BACKWARD) == {(0, 0), (1, 1)}
    assert union(FORWARD, BACKWARD) == FORWARD | BACKWARD


def test_grow_diag_final_and_by_hand():
    # from 1-1: neighbour 2-1 (source word 2 is free), then 2-2 (target word 2 is free); from 2-2: 3-3;
    # from 3-3: 3-4 (target word 4 is free). 6-4 is no neighbour, and its target word has a link: left out.
    # 5-5 joins two free words: the last step takes it.
    expected = {(0, 0), (1, 1), (2, 1), (2, 2), (3, 3), (3, 4), (5, 5)}
    assert grow_diag_final_and(FORWARD, BACKWARD) == expected


def test_the_last_step_wants_both_words_free():
    forward, backward = frozenset({(0, 0), (4, 0)}), frozenset({(0, 0), (4, 4)})
    assert grow_diag_final_and(forward, backward) == {(0, 0), (4, 4)}


@given(link_sets, link_sets)
def test_grown_links_lie_between_intersection_and_union(forward, backward):
    grown = grow_diag_final_and(forward, backward)
    assert forward & backward <= grown <= forward | backward


@given(link_sets, link_sets)
def test_links_grow_as_plain_loops_grow_them(forward, backward):
    """Sweep over the links in order until nothing grows; then free pairs, forward before backward."""
    links = [link for link in forward if link in backward]

    def free(link):
        return link[0] not in [i for i, _ in links], link[1] not in [j for _, j in links]

    before = None
    while before != len(links):
        before = len(links)
        for i, j in sorted(links):
            for step in [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]:
                near = i + step[0], j + step[1]
                if near in forward | backward and near not in links and any(free(near)):
                    links.append(near)
    for link in [*sorted(forward), *sorted(backward)]:
        if all(free(link)):
            links.append(link)
    assert grow_diag_final_and(forward, backward) == set(links)


@given(st.floats(0, 1), st.floats(0, 1))
def test_combined_probabilities_are_ordered(p, r):
    both, mean, either = (
        symmetrisation(name)[1](p, r) for name in ("intersection", "grow-diag-final-and", "union")
    )
    assert 0 <= both <= mean + 1e-12
    assert mean <= either + 1e-12
    assert either <= 1 + 1e-12


def test_an_unknown_symmetrisation_is_refused():
    with pytest.raises(
        UserError, match="expected one of intersection, union, grow-diag-final-and, got 'gdf'"
    ):
        symmetrisation("gdf")


def test_error_rate_by_its_formula():
    gold = [Links(frozenset({(0, 0), (1, 1)}), frozenset({(2, 1)})), Links(frozenset({(0, 1)}))]
    found = [Links(frozenset({(0, 0), (2, 1), (3, 3)})), Links(frozenset())]
    score = score_links(found, gold)
    # |A| = 3, |S| = 3, |A and S| = 1, |A and P| = 2 over both pairs
    assert score.aer == pytest.approx(1 - (1 + 2) / (3 + 3))
    assert score.precision == pytest.approx(2 / 3)
    assert score.recall == pytest.approx(1 / 3)
    assert (score.predicted, score.sure, score.possible) == (3, 3, 4)


@given(link_sets, link_sets, link_sets)
def test_error_rate_is_zero_exactly_between_sure_and_possible(sure, possible, extra):
    gold = Links(sure, possible - sure)
    assert score_links([Links(sure)], [gold]).aer == 0
    assert score_links([Links(sure | possible)], [gold]).aer == pytest.approx(0)
    wrong = extra - sure - possible
    if wrong:
        assert score_links([Links(sure | wrong)], [gold]).aer > 0


def test_nothing_found_of_nothing_is_no_error():
    score = score_links([Links(frozenset())], [Links(frozenset())])
    assert score.aer == 0
