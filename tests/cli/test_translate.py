"""`latentalign translate`: line for line, from anywhere to anywhere, and what it refuses."""

import gzip
import json
import subprocess
import sys

import pytest

from latentalign.text.links import format_links, parse_links
from latentalign.wordalign.aligner import Aligner
from tests.cli.command import assert_mistake, latentalign, untrained_run
from tests.translation.tiny import SENTENCES, TARGETS

FAST = ("--beam", 2, "--max-length-factor", 0.5)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return untrained_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "input.de"
    path.write_text("\n".join([*SENTENCES[:2], "", *SENTENCES[2:]]) + "\n", encoding="utf-8")
    return path


def test_line_for_line_from_standard_input(run, text):
    found = latentalign("translate", run, *FAST, stdin=text.read_text(encoding="utf-8"))
    assert found.code == 0
    lines = found.stdout.split("\n")
    assert len(lines) == 7  # six lines and what follows the last
    assert [number for number, line in enumerate(lines) if not line] == [2, 6]
    assert found.stderr == ""


def test_files_plain_and_gzipped_give_the_same(run, text, tmp_path):
    zipped = tmp_path / "input.de.gz"
    zipped.write_bytes(gzip.compress(text.read_bytes()))
    expected = latentalign("translate", run, *FAST, "--input", text).stdout
    found = latentalign("translate", run, *FAST, "--input", zipped, "--output", tmp_path / "out.en")
    assert (found.code, found.stdout) == (0, "")
    assert (tmp_path / "out.en").read_text(encoding="utf-8") == expected


def test_a_missing_last_line_end_loses_nothing(run):
    assert latentalign("translate", run, *FAST, stdin="ja\nja").stdout.count("\n") == 2


def test_scores_stand_before_the_text(run, text):
    plain = latentalign("translate", run, *FAST, "--input", text).stdout.splitlines()
    scored = latentalign("translate", run, *FAST, "--input", text, "--scores").stdout.splitlines()
    assert [line.split("\t")[1] for line in scored] == plain
    assert all(float(line.split("\t")[0]) <= 0 for line in scored)


def test_n_best_rows_name_line_and_rank(run, text):
    found = latentalign("translate", run, "--beam", 4, "--n-best", 3, "--scores", "--input", text)
    rows = [line.split("\t") for line in found.stdout.splitlines()]
    assert [row[:2] for row in rows if row[0] == "1"] == [["1", "1"], ["1", "2"], ["1", "3"]]
    assert [row for row in rows if row[0] == "3"] == [["3", "1", "0.0000", ""]]
    scores = [float(row[2]) for row in rows if row[0] == "4"]
    assert scores == sorted(scores, reverse=True)


def test_alignments_fit_the_output(run, text, tmp_path):
    links = tmp_path / "links"
    found = latentalign("translate", run, *FAST, "--input", text, "--alignments", links)
    sources, targets = text.read_text(encoding="utf-8").splitlines(), found.stdout.splitlines()
    rows = links.read_text().splitlines()
    assert len(rows) == len(targets) == 6
    assert rows[2] == ""
    assert any(rows)
    for source, target, row in zip(sources, targets, rows, strict=True):
        for i, j in parse_links(row, place="links").sure:
            assert i < len(source.split())
            assert j < len(target.split())


def test_an_aligner_finds_the_links_of_the_output(run, text, tmp_path):
    links, folder = tmp_path / "links", tmp_path / "aligner"
    aligner = Aligner.fit(list(zip(SENTENCES, TARGETS, strict=True)))
    aligner.save(folder)
    options = ("--n-best", 2, "--alignments", links, "--aligner", folder)
    found = latentalign("translate", run, *FAST, "--input", text, *options)
    assert found.code == 0, found.stderr
    lines = text.read_text(encoding="utf-8").splitlines()
    pairs = [(lines[int(row.split("\t")[0]) - 1], row.split("\t")[2]) for row in found.stdout.splitlines()]
    expected = [format_links(pair.links()) for pair in aligner.align(pairs)]
    assert links.read_text(encoding="utf-8").splitlines() == expected
    assert_mistake(latentalign("translate", run, "--input", text, "--aligner", folder), "--alignments FILE")
    assert_mistake(latentalign("translate", run, "--input", text, *options[:-1], run), "expected an aligner")


def test_an_over_long_sentence_is_translated_with_a_warning(run):
    found = latentalign("translate", run, *FAST, stdin="ja\n" + "Donau " * 40 + "\n")
    assert found.code == 0
    assert found.stdout.count("\n") == 2
    assert found.stderr.count("\n") == 1
    assert "standard input, line 2" in found.stderr
    assert "more than the 60 of training" in found.stderr


@pytest.mark.parametrize("inference", ["exact", "kmax:2", "sample:3", "soft"])
def test_every_inference_translates(run, inference):
    assert latentalign("translate", run, *FAST, "--inference", inference, stdin="ja\n").code == 0


def test_a_waiting_writer_is_answered_line_by_line(run):
    command = [sys.executable, "-m", "latentalign", "translate", str(run), *map(str, FAST)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        for sentence in SENTENCES[:2]:
            process.stdin.write(sentence + "\n")
            process.stdin.flush()
            assert process.stdout.readline().endswith("\n")  # would wait for ever without a flush
        process.stdin.close()
        assert process.stdout.read() == ""
        assert process.wait() == 0


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--beam", 0), "beam: expected a whole number from 1 (greedy search) to 1000, got 0"),
        (("--inference", "kmax:0"), "k: "),
        (("--inference", "kmix:3"), "kmax"),
        (("--n-best", 20), "n-best: expected between 1 and the beam size 10"),
        (("--batch-size", 0), "batch-size"),
        (("--input", "nowhere.de"), "nowhere.de: no such file"),
    ],
)
def test_mistakes_are_one_line(run, options, part):
    assert_mistake(latentalign("translate", run, *options, stdin="ja\n"), part)


def test_bad_bytes_are_named_and_nothing_is_left_behind(run, tmp_path):
    output = tmp_path / "out.en"
    found = latentalign("translate", run, *FAST, "--output", output, stdin=b"ja\n\xff\xfe\n")
    assert_mistake(found, "standard input, line 2", "0xff")
    assert list(tmp_path.iterdir()) == []
    bad = tmp_path / "bad.de"
    bad.write_bytes(b"ja\nM\xe4dchen\n")
    assert_mistake(latentalign("translate", run, "--input", bad), "bad.de, line 2")


def test_runs_without_or_with_a_damaged_model(tmp_path):
    assert_mistake(latentalign("translate", tmp_path / "nothing", stdin="ja\n"), "no such run folder")
    run = untrained_run(tmp_path / "run")
    whole = (run / "model.safetensors").read_bytes()
    (run / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    assert_mistake(latentalign("translate", run, stdin="ja\n"), "damaged")
    (run / "model.safetensors").unlink()
    assert_mistake(latentalign("translate", run, stdin="ja\n"), "no model.safetensors")


def test_a_relaxed_run_refuses_to_enumerate(tmp_path):
    run = untrained_run(tmp_path / "run", objective="soft", alignment="dirichlet")
    assert_mistake(
        latentalign("translate", run, "--inference", "exact", stdin="ja\n"), "relaxed", "sample:20"
    )
    assert latentalign("translate", run, *FAST, stdin="ja\n").code == 0


def test_evaluate_translates_for_bleu(run, text, tmp_path):
    reference = tmp_path / "reference.en"
    reference.write_text(latentalign("translate", run, "--beam", 2, "--input", text).stdout, encoding="utf-8")
    lines = text.read_text(encoding="utf-8")
    full = tmp_path / "full.de"
    full.write_text(lines, encoding="utf-8")
    found = latentalign(
        "evaluate", run, "--source", full, "--target", reference, "--bleu", "--beam", 2, "--json"
    )
    assert found.code == 0, found.stderr
    results = json.loads(found.stdout)
    assert results["bleu"] == pytest.approx(100)
    assert results["chrf"] == pytest.approx(100)
    assert "tok:13a" in results["bleu_signature"]
