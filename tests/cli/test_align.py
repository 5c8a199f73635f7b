"""`latentalign align` and `latentalign aer`: links, scores, two directions, and mistakes."""

import gzip
import json

import pytest

from latentalign.text.links import parse_links
from tests.cli.command import assert_mistake, latentalign, untrained_run
from tests.translation.tiny import SENTENCES, TARGETS


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return untrained_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def files(tmp_path):
    paths = (tmp_path / "text.de", tmp_path / "text.en")
    for path, lines in zip(paths, (SENTENCES, TARGETS), strict=True):
        path.write_text("\n".join([*lines, ""]) + "\n", encoding="utf-8")
    return ("--source", paths[0], "--target", paths[1])


def parsed(text):
    return [parse_links(line, place="output") for line in text.splitlines()]


def test_links_for_every_pair_and_an_empty_line_for_an_empty_pair(run, files):
    found = latentalign("align", run, *files)
    assert (found.code, found.stderr) == (0, "")
    links = parsed(found.stdout)
    assert len(links) == 6
    assert links[-1].sure == frozenset()
    for one, source, target in zip(links, SENTENCES, TARGETS, strict=False):
        assert all(i < len(source.split()) and j < len(target.split()) for i, j in one.sure)
    assert sum(len(one.sure) for one in links) > len(SENTENCES)


def test_prior_posterior_and_exact_differ(run, files):
    found = {
        by: latentalign("align", run, *files, "--by", by).stdout for by in ("prior", "posterior", "exact")
    }
    assert len(set(found.values())) == 3
    assert latentalign("align", run, *files).stdout == found["exact"]


def test_scores_are_written_and_can_be_read_back(run, files):
    plain = parsed(latentalign("align", run, *files).stdout)
    rows = latentalign("align", run, *files, "--scores").stdout.splitlines()
    scored = [parse_links(row, place="output") for row in rows]
    assert [one.sure for one in scored] == [one.sure for one in plain]
    assert set(scored[0].probs) == scored[0].sure
    scores = [float(row.split("\t")[1]) for row in rows]
    assert all(score < 0 for score in scores)
    assert scores[-1] == -float("inf")


def test_a_lower_threshold_gives_more_links(run, files):
    counts = [
        sum(len(one.sure) for one in parsed(latentalign("align", run, *files, "--threshold", t).stdout))
        for t in (0.9, 0.5, 0.05)
    ]
    assert counts[0] < counts[1] < counts[2]


def test_two_directions_in_three_ways(run, files, tmp_path):
    # the tiny tokenizers are joint enough for the same run to read the other language
    both = (*files, "--with", run, "--symmetrise")
    found = {
        method: parsed(latentalign("align", run, *both, method, "--scores").stdout)
        for method in ("intersection", "grow-diag-final-and", "union")
    }
    for small, middle, large in zip(*found.values(), strict=True):
        assert small.sure <= middle.sure <= large.sure
    assert sum(len(one.sure) for one in found["union"]) > sum(len(one.sure) for one in found["intersection"])


def test_output_and_gzipped_input(run, files, tmp_path):
    zipped = tmp_path / "text.de.gz"
    zipped.write_bytes(gzip.compress(files[1].read_bytes()))
    found = latentalign("align", run, "--source", zipped, *files[2:], "--output", tmp_path / "links")
    assert (found.code, found.stdout) == (0, "")
    assert (tmp_path / "links").read_text() == latentalign("align", run, *files).stdout


def test_files_of_different_length_are_refused_with_both_counts(run, files, tmp_path):
    files[1].write_text("eins\nzwei\n", encoding="utf-8")
    found = latentalign("align", run, *files, "--output", tmp_path / "links")
    assert_mistake(found, "has 2 lines", "has 6")
    assert not (tmp_path / "links").exists()


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--by", "attention"), "expected one of posterior, prior, exact"),
        (("--symmetrise", "union"), "--with"),
        (("--with", "x", "--symmetrise", "gdf"), "grow-diag-final-and"),
        (("--threshold", 0), "threshold"),
        (("--source", "nowhere.de"), "nowhere.de: no such file"),
    ],
)
def test_mistakes_are_one_line(run, files, options, part):
    assert_mistake(latentalign("align", run, *files, *options), part)


def test_a_soft_run_has_no_posterior(files, tmp_path):
    soft = untrained_run(tmp_path / "soft", objective="soft")
    assert_mistake(latentalign("align", soft, *files, "--by", "posterior"), "no posterior")
    exact = latentalign("align", soft, *files, "--by", "exact").stdout
    assert latentalign("align", soft, *files).stdout == exact
    assert latentalign("align", soft, *files, "--by", "prior").stdout != exact


@pytest.fixture
def links(tmp_path):
    gold, found = tmp_path / "gold", tmp_path / "found"
    gold.write_text("0-0 1?1\n2-2\n")
    found.write_text("0-0:0.9 1-1:0.8\t-1.5\n0-0\t-2.0\n")
    return gold, found


def test_error_rate_as_text_and_as_json(links):
    found = latentalign("aer", "--gold", links[0], "--predicted", links[1], "--json")
    # |A| = 3, |S| = 2, |A and S| = 1, |A and P| = 2
    rates = json.loads(found.stdout)
    assert rates["aer"] == pytest.approx(1 - 3 / 5)
    assert rates["precision"] == pytest.approx(2 / 3)
    assert rates["recall"] == pytest.approx(1 / 2)
    assert rates["pairs"] == 2
    assert "aer 0.4000" in latentalign("aer", "--gold", links[0], "--predicted", links[1]).stdout


def test_error_rate_mistakes(links, tmp_path):
    gold, found = links
    options = ("aer", "--gold", gold, "--predicted", found)
    with found.open("a") as stream:
        stream.write("0-0\n")
    assert_mistake(latentalign(*options), "has 2 lines", "has 3")
    found.write_text("0-0\n1:2\n")
    assert_mistake(latentalign(*options), "found, line 2")
    found.write_text("0-0\n0-2\n")
    source, target = tmp_path / "s", tmp_path / "t"
    source.write_text("a b\nc d e\n")
    target.write_text("a b\nc d e\n")
    assert latentalign(*options, "--source", source, "--target", target).code == 0
    target.write_text("a b\nc d\n")
    assert_mistake(
        latentalign(*options, "--source", source, "--target", target), "line 2: link", "does not fit"
    )
    assert_mistake(latentalign(*options, "--source", source), "both --source and --target")
