"""`latentalign align` without a run: learn, save, use again, update, merge, and every mistake in one line."""

import json
import shutil

import pytest

from latentalign.text.links import parse_links
from tests.cli.command import assert_mistake, latentalign
from tests.wordalign.corpora import generated

PAIRS, GOLD = generated(60, seed=2)


def write(folder, pairs, name="text"):
    paths = folder / f"{name}.f", folder / f"{name}.e"
    for side, path in enumerate(paths):
        path.write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8")
    return ("--source", paths[0], "--target", paths[1])


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    """Files, the links that learning printed, and the saved aligner."""
    folder = tmp_path_factory.mktemp("aligner")
    files = write(folder, [*PAIRS, ("", ""), ("f1ttt", "")])
    found = latentalign("align", *files, "--save", folder / "saved")
    assert found.code == 0
    return files, found, folder / "saved"


def parsed(text):
    return [parse_links(line, place="output") for line in text.splitlines()]


def test_links_are_learnt_from_the_pairs_alone(learnt):
    links = parsed(learnt[1].stdout)
    assert len(links) == len(PAIRS) + 2
    assert links[-1].sure == links[-2].sure == frozenset()
    right = sum(len(one.sure & gold) for one, gold in zip(links, GOLD, strict=False))
    assert right / sum(map(len, GOLD)) > 0.9


def test_progress_and_what_has_no_links_are_told_on_stderr(learnt):
    assert "nats a word" in learnt[1].stderr
    assert "2 pairs with an empty side and 0 too long have no links" in learnt[1].stderr


def test_a_saved_aligner_gives_the_same_links(learnt, tmp_path):
    files, found, saved = learnt
    again = latentalign("align", saved, *files)
    assert (again.code, again.stdout) == (0, found.stdout)
    one = write(tmp_path, PAIRS[5:6])
    assert latentalign("align", saved, *one).stdout == found.stdout.splitlines(keepends=True)[5]


def test_scores_rank_bad_pairs_last(learnt, tmp_path):
    files = write(tmp_path, [PAIRS[0], (PAIRS[0][0], "e9bbb e9bbb e9bbb"), ("", "")])
    rows = latentalign("align", learnt[2], *files, "--scores").stdout.splitlines()
    scores = [float(row.split("\t")[1]) for row in rows]
    assert scores[0] > scores[1] > scores[2] == -float("inf")
    probs = parse_links(rows[0], place="output").probs
    assert len(probs) >= len(PAIRS[0][1].split())
    assert all(0 < p <= 1 for p in probs.values())


@pytest.mark.parametrize(
    "method", ["mean", "intersection", "union", "grow-diag-final-and", "forward", "backward"]
)
def test_every_way_to_symmetrise(learnt, method):
    found = latentalign("align", learnt[2], *learnt[0], "--symmetrise", method)
    assert found.code == 0
    assert sum(len(one.sure) for one in parsed(found.stdout)) > 100


def test_threshold_and_null_change_how_many_links_there_are(learnt):
    def count(*options):
        found = latentalign("align", learnt[2], *learnt[0], *options)
        return sum(len(one.sure) for one in parsed(found.stdout))

    assert count("--threshold", "0.01") > count() > count("--threshold", "0.9999")
    assert count("--null", "0.9999999") < count()


def test_an_update_knows_new_words(learnt, tmp_path):
    files = write(tmp_path, [("neu", "new"), ("neu neu", "new new")] * 4)
    found = latentalign("align", learnt[2], *files, "--update", "--save", tmp_path / "updated")
    assert found.code == 0
    again = latentalign("align", tmp_path / "updated", *files)
    assert "unknown" not in again.stderr
    assert again.stdout == found.stdout
    known = latentalign("align", learnt[2], *write(tmp_path, [("neu f1ttt", "e1bbb new")], "few"))
    assert "2 of 4 words (50.0%) are unknown" in known.stderr


def test_two_aligners_are_merged_without_any_pairs(learnt, tmp_path):
    files = write(tmp_path, [("neu", "new"), ("neu neu", "new new")] * 4)
    latentalign("align", *files, "--save", tmp_path / "other")
    found = latentalign("align", learnt[2], "--merge", tmp_path / "other", "--save", tmp_path / "both")
    assert (found.code, found.stdout) == (0, "")
    both = latentalign("align", tmp_path / "both", *files)
    assert "unknown" not in both.stderr
    assert len(both.stdout.splitlines()) == 8


def test_an_output_file_and_gzipped_input(learnt, tmp_path):
    import gzip

    zipped = []
    for path in (learnt[0][1], learnt[0][3]):
        name = tmp_path / f"{path.name}.gz"
        name.write_bytes(gzip.compress(path.read_bytes()))
        zipped.append(name)
    found = latentalign(
        "align", learnt[2], "--source", zipped[0], "--target", zipped[1], "--output", tmp_path / "links"
    )
    assert (found.code, found.stdout) == (0, "")
    assert (tmp_path / "links").read_text() == learnt[1].stdout


def test_a_line_of_ten_thousand_words_is_skipped_and_counted(learnt, tmp_path):
    files = write(tmp_path, [PAIRS[0], ("f1ttt " * 10_000, "e1bbb " * 10_000)])
    found = latentalign("align", learnt[2], *files)
    assert found.code == 0
    assert found.stdout.splitlines()[1] == ""
    assert "1 too long have no links" in found.stderr
    learnt_with_it = latentalign("align", *files)
    assert learnt_with_it.code == 0
    assert len(learnt_with_it.stdout.splitlines()) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--threshold", "1.5"), "threshold: expected a probability between 0 and 1, got 1.5"),
        (("--threshold", "-0.1"), "threshold: expected a probability between 0 and 1, got -0.1"),
        (("--symmetrise", "best"), "symmetrise: expected one of mean, intersection"),
        (("--null", "0"), "--null: expected a probability above 0 and below 1"),
        (("--processes", "0"), "--processes: expected 1 to"),
        (("--processes", "100000"), "got 100000"),
        (("--most-counts", "0"), "--most-counts: expected at least 1"),
        (("--by", "prior"), "--by, --path and --with are for translation runs"),
        (("--update",), "name its folder first"),
    ],
)
def test_options_that_cannot_be_meant(learnt, options, message):
    assert_mistake(latentalign("align", *learnt[0], *options), message)


def test_files_of_different_lengths(learnt, tmp_path):
    files = write(tmp_path, PAIRS[:5])
    files[1].write_text("eins\n" * 4, encoding="utf-8")
    for aligner in ((), (learnt[2],)):
        assert_mistake(latentalign("align", *aligner, *files), "has 4 lines but")


def test_files_without_a_pair_to_learn_from(tmp_path):
    assert_mistake(latentalign("align", *write(tmp_path, [("", "a")])), "there is no pair to learn from")


def test_one_file_is_not_enough(learnt):
    assert_mistake(latentalign("align", *learnt[0][:2]), "expected --source FILE and --target FILE")
    assert_mistake(latentalign("align"), "expected --source FILE and --target FILE")


def test_an_aligner_of_other_languages(learnt, tmp_path):
    files = write(tmp_path, [("een heel ander taal in dit bestand", "und hier wieder eine ganz andere")] * 4)
    message = "100% of the words of --source are unknown to this aligner"
    assert_mistake(latentalign("align", learnt[2], *files), message)


def test_a_damaged_aligner(learnt, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(learnt[2], copy)
    arrays = copy / "model.safetensors"
    arrays.write_bytes(arrays.read_bytes()[:-1] + b"x")
    assert_mistake(latentalign("align", copy, *learnt[0]), "model.safetensors is damaged")


def test_aligners_with_different_settings_are_not_merged(learnt, tmp_path):
    other = tmp_path / "other"
    latentalign("align", *write(tmp_path, PAIRS[:3]), "--null", "0.5", "--save", other)
    found = latentalign("align", learnt[2], "--merge", other, "--save", tmp_path / "both")
    assert_mistake(found, "expected aligners with the same settings, but null differ")
    assert not (tmp_path / "both").exists()


def test_a_new_aligner_needs_a_place(learnt):
    assert_mistake(latentalign("align", learnt[2], *learnt[0], "--update"), "say with --save where")


def test_a_folder_with_something_else_is_left_alone(learnt, tmp_path):
    (tmp_path / "notes").write_text("mine")
    assert_mistake(
        latentalign("align", *learnt[0], "--save", tmp_path), "is not an aligner; choose another name"
    )
    assert (tmp_path / "notes").read_text() == "mine"


def test_links_of_an_aligner_can_be_measured(learnt, tmp_path):
    (tmp_path / "links").write_text("".join(learnt[1].stdout.splitlines(keepends=True)[: len(PAIRS)]))
    (tmp_path / "gold").write_text("".join(" ".join(f"{i}-{j}" for i, j in sorted(g)) + "\n" for g in GOLD))
    found = latentalign("aer", "--gold", tmp_path / "gold", "--predicted", tmp_path / "links", "--json")
    assert json.loads(found.stdout)["aer"] < 0.1
