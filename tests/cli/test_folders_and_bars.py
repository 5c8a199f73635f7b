"""What commands write into folders, what they say about strange files, and the bars they show on a terminal."""

import io
import json
import sys

import pytest

from latentalign.cli.progress import progress
from latentalign.reports.demo import comparison
from tests.cli.command import assert_mistake, latentalign, untrained_run
from tests.cli.strange import small_recipe


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return untrained_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def pair(tmp_path):
    path = tmp_path / "text"
    path.write_text("ein Hund\nja\n")
    return ("--source", path, "--target", path)


# --- folders -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["report.html", "notes.txt", "runs"])
def test_a_demonstration_does_not_overwrite_a_foreign_folder(tmp_path, monkeypatch, name):
    monkeypatch.setattr(comparison, "run_demo", lambda *arguments, **options: pytest.fail("it began"))
    out = tmp_path / "mine"
    out.mkdir()
    (out / name).write_text("mine")
    assert_mistake(latentalign("demo", "--out", out), "exists already")
    assert_mistake(latentalign("demo", "--out", out, "--overwrite"), "demo.json", "left as it is")
    assert [path.name for path in out.iterdir()] == [name]
    assert (out / name).read_text() == "mine"


def test_a_demonstration_replaces_one(tmp_path, monkeypatch):
    began = []

    def begin(*arguments, **options):
        began.append(1)
        raise KeyboardInterrupt

    monkeypatch.setattr(comparison, "run_demo", begin)
    assert latentalign("demo", "--out", tmp_path / "demo").code == 130
    assert latentalign("demo", "--out", tmp_path / "demo", "--overwrite").code == 130
    assert len(began) == 2


def test_preparing_does_not_overwrite_a_foreign_folder(tmp_path):
    recipe, out = small_recipe(tmp_path / "recipe"), tmp_path / "mine"
    out.mkdir()
    (out / "train.json").write_text("mine")
    assert_mistake(latentalign("prepare", recipe, "--to", out), "exists already")
    assert_mistake(latentalign("prepare", recipe, "--to", out, "--overwrite"), "prepared.json")
    assert (out / "train.json").read_text() == "mine"
    (out / "train.json").unlink()
    for options in ((), ("--overwrite",)):
        found = latentalign("prepare", recipe, "--to", out, *options)
        assert found.code == 0, found.stderr
    prepared = f"data.prepared={out}"
    assert latentalign("check", recipe, "--set", prepared).code == 0
    (out / "prepared.json").write_text("{}")  # as if preparing had been killed
    assert_mistake(latentalign("check", recipe, "--set", prepared), "run `latentalign prepare` again")
    assert latentalign("prepare", recipe, "--to", out, "--overwrite").code == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--only", "sof"), "did you mean"),
        (("--only", "nothing like it"), "choose one of"),
        (("--beam", 0), "beam"),
        (("--adopt", "nowhere"), "nowhere: no such folder"),
        (("--jobs", 100_000), "--jobs"),
        (("--task", "translatoin"), "translat"),
        (("--seeds", "1,1"), "--seeds"),
        (("--set", "training.epoch=1"), "epochs"),
    ],
)
def test_a_dry_run_refuses_what_the_run_refuses(tmp_path, options, told):
    recipe = small_recipe(tmp_path / "recipe")
    base = (
        "reproduce",
        "table1",
        "--data",
        recipe.parent,
        "--recipe",
        recipe,
        "--source",
        recipe.parent / "text.de",
    )
    base = (*base, "--target", recipe.parent / "text.en", "--out", tmp_path / "out")
    assert latentalign(*base, "--dry-run").code == 0
    assert_mistake(latentalign(*base, *options, "--dry-run"), told)
    assert not (tmp_path / "out").exists()


# --- files that are not what they should be ------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"garbage", b"\0" * 100, b"\x0a\xff"])
def test_a_garbage_tokenizer_is_named(tmp_path, content):
    run = untrained_run(tmp_path / "run")
    (run / "tokenizer.model").write_bytes(content)
    assert_mistake(latentalign("translate", run, stdin="ja\n"), "tokenizer.model", "sentencepiece")


@pytest.mark.parametrize("content", ["", "[]", "{}", "null", '{"source": 3}', "[" * 5000])
def test_a_garbage_vocabulary_is_named(tmp_path, content):
    run = untrained_run(tmp_path / "run")
    (run / "vocabulary.json").write_text(content)
    assert_mistake(latentalign("translate", run, stdin="ja\n"), "vocabulary.json: damaged")


def test_half_characters_in_a_table_are_named(tmp_path):
    recipe = small_recipe(tmp_path / "recipe")
    table = recipe.parent / "table.jsonl"
    table.write_text('{"de": "ja", "en": "yes"}\n{"de": "\\ud800", "en": "yes"}\n')
    columns = f"{{table: {table}, source_column: de, target_column: en}}"
    found = latentalign("check", recipe, "--set", f"data.train={columns}")
    assert_mistake(found, "table.jsonl, line 2", "half of a character")


def test_a_byte_order_mark_is_no_part_of_a_column(tmp_path):
    recipe = small_recipe(tmp_path / "recipe")
    table = recipe.parent / "table.tsv"
    table.write_text("de\ten\nja\tyes\n", encoding="utf-8-sig")
    columns = f"{{table: {table}, source_column: de, target_column: en}}"
    found = latentalign("check", recipe, "--set", f"data.train={columns}")
    assert found.code == 0, found.stderr


def test_a_second_run_of_the_same_direction_is_noticed(run, pair, tmp_path):
    found = latentalign("align", run, *pair, "--with", run, "--symmetrise", "union")
    assert found.code == 0
    assert "same direction" in found.stderr
    other = untrained_run(tmp_path / "other")
    vocabulary = json.loads((other / "vocabulary.json").read_text())
    vocabulary["source"], vocabulary["target"] = vocabulary["target"], vocabulary["source"]
    if vocabulary["source"] == vocabulary["target"]:
        pytest.skip("the tiny vocabularies are the same")
    (other / "vocabulary.json").write_text(json.dumps(vocabulary))
    sizes = latentalign("align", run, *pair, "--with", other, "--symmetrise", "union")
    assert "same direction" not in sizes.stderr


# --- bars ----------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("results_on_stdout", [True, False])
@pytest.mark.parametrize(("out", "err"), [(True, True), (False, True), (True, False), (False, False)])
def test_a_bar_is_for_a_terminal_that_shows_nothing_else(monkeypatch, out, err, results_on_stdout):
    streams = {True: Terminal, False: io.StringIO}
    monkeypatch.setattr(sys, "stdout", streams[out]())
    monkeypatch.setattr(sys, "stderr", streams[err]())
    monkeypatch.setenv("TERM", "xterm")
    with progress("counting", results_on_stdout=results_on_stdout) as advance:
        advance(1, 3)
        sys.stdout.write("a result\n")
        advance(3, 3)
    shown = err and not (results_on_stdout and out)
    assert ("counting" in sys.stderr.getvalue()) == shown
    assert sys.stdout.getvalue() == "a result\n"


@pytest.mark.parametrize(
    ("command", "what"), [("translate", "translating"), ("align", "aligning"), ("evaluate", "evaluating")]
)
def test_long_commands_show_a_bar(run, pair, tmp_path, monkeypatch, command, what):
    import latentalign.cli.progress as bars

    seen = []
    monkeypatch.setattr(bars.sys.stderr.__class__, "isatty", lambda self: True, raising=False)
    recorded = bars.progress

    def watched(name, **options):
        seen.append(name)
        return recorded(name, **options)

    module = __import__(f"latentalign.cli.{command}", fromlist=["progress"])
    monkeypatch.setattr(module, "progress", watched)
    given = {
        "translate": ("-i", pair[1], "-o", tmp_path / "out", "--beam", 1),
        "align": pair,
        "evaluate": pair,
    }
    found = latentalign(command, run, *given[command])
    assert found.code == 0, found.stderr
    assert seen == [what]
