"""`reproduce`: what it refuses, what it plans, and (slow) all of it on a generated corpus."""

import json
import math

import pytest

from latentalign.cli.reproduce import LETTERS_TO_SOUNDS, STUDIES
from latentalign.reports.grid.study import find_task_studies
from tests.cli.command import assert_mistake, latentalign
from tests.reports.corpora import write_data

KEYS = {
    "objective",
    "estimator",
    "seed",
    "inference",
    "ppl",
    "bleu",
    "prior_entropy",
    "minutes",
    "recipe",
    "version",
}
PAPER = [
    "soft", "marginal", "hard-enumerate", "hard-sample", "relaxed", "variational-enumerate", "variational-sample"
]  # fmt: skip
TABLE1 = [*PAPER, "wake", "chain", "enumerate-from-prior", "sample-from-prior", "em"]
TABLE3 = [
    "variational-sample", "rws", "gumbel", "vimco", "svi", "semi-amortised", "leave-one-out-2", "leave-one-out-5",
    "logistic-normal", "sparsemax", "gaussian-context", "enumerate-from-prior", "sample-from-prior",
]  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("corpus"), train=200, test=12)


def command(study, data, *more):
    return latentalign("reproduce", study, "--data", data, "--recipe", data / "tiny.yaml", *more)


def test_mistakes_are_told_in_one_line(data, tmp_path):
    out = ("--out", tmp_path / "out")
    assert_mistake(command("table9", data, *out), "table9", "expected a study")
    assert_mistake(command("table1", tmp_path / "nowhere", *out), "--data", "no such folder")
    assert_mistake(command("table1", data, *out, "--seeds", "one"), "--seeds one", "for example 1,2")
    assert_mistake(command("table1", data, *out, "--seeds", "1,1"), "different")
    assert_mistake(command("table1", data, *out, "--jobs", -1), "--jobs -1")
    assert_mistake(command("table1", data, *out, "--only", "sof"), "--only sof", "soft")
    assert_mistake(command("table1", data, *out, "--task", "music"), "--task music", "vqa")
    assert_mistake(command("table1", data, *out, "--set", "schedule=[]", "--set", "modle=1"), "modle")
    assert_mistake(command("table1", data, *out, "--set", "training.epochs=1.0"), "training.epochs")
    assert_mistake(command("table1", data, *out, "--finished"), "--finished", "no row of table1", "--adopt")
    assert_mistake(command("figure3", data, *out, "--finished"), "--finished", "reads the runs")
    assert not (tmp_path / "out").exists()


def test_a_dry_run_says_what_would_be_done_and_does_nothing(data, tmp_path):
    outcome = command("table1", data, "--out", tmp_path / "out", "--seeds", "1,2", "--dry-run")
    assert outcome.code == 0
    lines = outcome.stdout.splitlines()
    assert sum(line.startswith("warmup-") for line in lines) == 5
    assert sum("-s1: to be trained" in line for line in lines) == 12
    assert sum("-s2: to be trained, after warmup-" in line for line in lines) == 3
    assert not (tmp_path / "out").exists()


def check_rows(rows, names):
    assert [row["row"] for row in rows] == names
    for row in rows:
        assert set(row) >= KEYS
        for name in ("ppl", "bleu", "prior_entropy", "minutes"):
            assert math.isfinite(row[name]), (row["row"], name)
        assert row["ppl"] > 1


def produce(study, data, folder, *more):
    outcome = command(
        study, data, "--out", folder, "--runs", folder.parent / "runs", "--beam", 2, "--json", *more
    )
    assert outcome.code == 0, outcome.stderr
    content = json.loads(outcome.stdout)
    assert content == json.loads((folder / f"{study}.json").read_text())
    for ending in ("md", "html"):
        assert (folder / f"{study}.{ending}").stat().st_size > 300
    return content, outcome.stderr


@pytest.mark.slow
@pytest.mark.timeout(1200)  # twenty-odd trainings
def test_everything_on_a_generated_corpus(data, tmp_path):
    out = tmp_path / "results"
    content, said = produce("table1", data, out, "--jobs", 2, "--seeds", "1,2")
    check_rows(content["rows"], [n for name in TABLE1 for n in [name] * (2 if name in _PRINCIPAL else 1)])
    assert all(claim["agrees"] is not None for claim in content["claims"])
    assert {(test["seed"], test["system"]) for test in content["significance"]} == {
        *((1, name) for name in TABLE1[1:]), (2, "marginal"), (2, "variational-sample")
    }  # fmt: skip
    assert sum(line.endswith(": warm-up trained") for line in said.splitlines()) == 5
    assert {(one["row"], one["seed"]) for one in content["overtakings"]} >= {
        ("wake", 1),
        ("variational-sample", 2),
    }
    assert (out / "table1-curves.png").is_file()

    content, said = produce("table2", data, out, "--jobs", 0)
    assert "training" not in said
    names = [name for name in PAPER if name != "relaxed"]
    check_rows(content["rows"], [name for name in names for _ in range(2)])
    assert len(content["curve"]) == len(names) * 11
    assert (out / "table2-curve.png").is_file()

    content, _ = produce("table3", data, out, "--jobs", 0)
    check_rows(content["rows"], TABLE3)
    assert all(row["peak_memory_mb"] > 50 and row["tokens_per_second"] > 0 for row in content["rows"])

    content, _ = produce("figure3", data, out, "--jobs", 0)
    assert len(content["rows"]) == 6
    assert all((out / row["picture"]).is_file() for row in content["rows"])

    content, _ = produce("gradients", data, out, "--jobs", 0)
    assert [point["point"] for point in content["rows"][::24]] == [
        "after soft", "after wake", "after variational-reinforce"
    ]  # fmt: skip
    assert len(content["rows"]) == 3 * 24
    assert len(content["tightness"]) == 3 * 7

    page = (out / "README.md").read_text()
    assert all(f"## {title}" in page for title in _SECTIONS)
    trained = sorted(path.parent.name for path in (tmp_path / "runs").glob("*/config.yaml"))
    # four warm-ups of the paper's rows, one of q from the prior; the rows; a second seed of the principal ones
    assert len(trained) == 4 + 1 + len({*TABLE1, *TABLE3}) + len(_PRINCIPAL)

    again, said = produce("table1", data, out, "--jobs", 2, "--seeds", "1,2")
    assert said == "table1: 15 cells, 15 done before\n"
    check_rows(again["rows"], [row["row"] for row in again["rows"]])


_PRINCIPAL = ("soft", "marginal", "variational-sample")
_SECTIONS = (
    "Every objective", "Fewer positions at test time", "Ways to train the variational model", "Alignments",
    "Gradients and bounds",
)  # fmt: skip


def test_a_mistyped_study_is_told_before_anything_else() -> None:
    assert {*find_task_studies("translation")[1], LETTERS_TO_SOUNDS} == set(STUDIES)
    mistake = latentalign("reproduce", "tabel1", "--data", "nowhere", "--dry-run")
    assert_mistake(mistake, "reproduce: expected a study, received 'tabel1'; did you mean 'table1'?")
