"""Spelling to pronunciation by the command line: a small table of words, from training to error rates."""

import json

import pytest

from tests.cli.command import assert_mistake, latentalign

WORDS = [("aab", "aː p"), ("ba", "b a"), ("né", "n eː"), ("bab", "b a p"), ("nab", "n a p"), ("a b", "a p")]
RECIPE = """
task: translation
data:
  folder: {folder}
  train: {{table: train.tsv, source_column: 1, target_column: 2}}
  valid: {{table: dev.tsv, source_column: 1, target_column: 2}}
  tokenizer: {{source: {{kind: characters}}, target: {{kind: whitespace}}}}
  batch_size: 4
model: {{embedding_size: 8, memory_size: 8, decoder_size: 8, attention_size: 4}}
objective: marginal
training: {{epochs: 2, threads: 1}}
"""


def write(folder, name, rows):
    (folder / name).write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def words(tmp_path):
    write(tmp_path, "train.tsv", WORDS * 3)
    write(tmp_path, "dev.tsv", WORDS)
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(folder=tmp_path), encoding="utf-8")
    return tmp_path


def test_from_a_table_to_error_rates(words):
    run = words / "run"
    found = latentalign("train", words / "recipe.yaml", "--out", run)
    assert found.code == 0, found.stderr
    found = latentalign("evaluate", run, "--table", words / "dev.tsv", "--errors", "--beam", 2, "--json")
    results = json.loads(found.stdout)
    assert results["examples"] == len(WORDS)
    assert 0 <= results["word_error_interval"][0] <= results["word_error"] <= 100
    assert results["phone_error"] > 0
    assert not {name for name in results if "unknown" in name or "left_out" in name}
    write(words, "strange.tsv", [("жaж", "a p"), ("ba", "b x")])
    for runs in ((run,), (run, run)):
        found = latentalign("evaluate", *runs, "--table", words / "strange.tsv", "--json")
        results = json.loads(found.stdout)
        assert (results["unknown_source_pieces"], results["unknown_target_pieces"]) == (2, 1)
    found = latentalign("translate", run, "--beam", 2, stdin="ab\nжn\n\nnab\n")
    lines = found.stdout.split("\n")
    assert len(lines) == 5
    phones = {phone for line in lines for phone in line.split()}
    assert phones
    assert phones <= {"aː", "p", "b", "a", "n", "eː"}
    assert found.stderr == "latentalign: standard input: 1 pieces were never seen in training\n"
    links = latentalign("align", run, "--source", words / "s", "--target", words / "t")
    assert links.code == 2  # no such files
    (words / "s").write_text("nab\n", encoding="utf-8")
    (words / "t").write_text("n a p\n", encoding="utf-8")
    links = latentalign("align", run, "--source", words / "s", "--target", words / "t")
    assert {link.split("-")[1] for link in links.stdout.split()} == {"0", "1", "2"}  # letters, not words
    assert {int(link.split("-")[0]) for link in links.stdout.split()} <= {0, 1, 2}


def test_letters_never_seen_are_counted(words):
    write(words, "dev.tsv", [("жaж", "a p"), ("ba", "b x")])
    found = latentalign("check", words / "recipe.yaml")
    assert found.code == 0, found.stderr
    assert "2 source pieces are unknown; 1 target pieces are unknown" in found.stdout + found.stderr


@pytest.mark.parametrize(
    ("rows", "parts"),
    [
        ([("ba", "b a"), ("ab", "a p", "x")], ("train.tsv, line 2", "expected 2 columns, found 3")),
        ([("ba",), ("ab", "a p")], ("train.tsv, line 1", "expected 2 columns, found 1")),
        ([("ba", "b a"), (" ", "a p")], ("train.tsv, line 2", "column 1 is empty", "expected a word")),
        ([("ba", "b a"), ("ab", "")], ("train.tsv, line 2", "column 2 is empty")),
    ],
)
def test_a_damaged_table_is_refused_by_its_line(words, rows, parts):
    write(words, "train.tsv", rows)
    assert_mistake(latentalign("check", words / "recipe.yaml"), *parts)


def test_a_table_or_two_files_but_not_both(words):
    latentalign("train", words / "recipe.yaml", "--out", words / "run")
    table = words / "dev.tsv"
    both = latentalign("evaluate", words / "run", "--table", table, "--source", table)
    assert_mistake(both, "either --source and --target or --table")
    assert_mistake(latentalign("evaluate", words / "run", "--source", table), "needs --target", "--table")


def test_columns_are_two_names_or_two_numbers(words):
    setting = "data.train={table: train.tsv, source_column: 1, target_column: phones}"
    assert_mistake(latentalign("check", words / "recipe.yaml", "--set", setting), "two names or two numbers")


@pytest.fixture
def two_languages(words):
    """The same letters, other phones: without the tag nobody can tell."""
    write(words, "upper.tsv", [(word, phones.upper()) for word, phones in WORDS] * 3)
    write(words, "upper_dev.tsv", [(word, phones.upper()) for word, phones in WORDS])
    columns = "source_column: 1, target_column: 2, tags: [low, up]"
    text = RECIPE.format(folder=words)
    for split, tables in (("train", "[train.tsv, upper.tsv]"), ("valid", "[dev.tsv, upper_dev.tsv]")):
        begin = text.index(f"  {split}: {{")
        end = text.index("\n", begin)
        text = f"{text[:begin]}  {split}: {{table: {tables}, {columns}}}{text[end:]}"
    (words / "two.yaml").write_text(text.replace("size: 8", "size: 32"), encoding="utf-8")
    return words


def test_one_model_of_several_languages(two_languages):
    run = two_languages / "run"
    found = latentalign(
        "train", two_languages / "two.yaml", "--set", "training.epochs=40", "--set", "training.learning_rate=0.01",
        "--set", "objective=soft", "--out", run,
    )  # fmt: skip
    assert found.code == 0, found.stderr
    rates = {}
    for tag, table in (("low", "dev.tsv"), ("up", "upper_dev.tsv"), ("low", "upper_dev.tsv")):
        found = latentalign(
            "evaluate", run, "--table", two_languages / table, "--tag", tag, "--errors", "--json"
        )
        results = json.loads(found.stdout)
        assert "unknown_source_pieces" not in results
        rates[tag, table] = results["word_error"]
    assert rates["low", "dev.tsv"] < 50 > rates["up", "upper_dev.tsv"]
    assert rates["low", "upper_dev.tsv"] == 100
    found = latentalign(
        "translate", run, "--length-penalty", 0, "--eos-penalty", 0, stdin="<low> nab\n<up>nab\n"
    )
    low, up = found.stdout.splitlines()
    assert low == low.lower() != ""
    assert up == low.upper()  # with and without a blank behind the tag
    assert found.stderr == ""


def test_tags_that_do_not_fit(two_languages, words):
    train = two_languages / "two.yaml"
    latentalign("train", train, "--out", words / "run")
    table = ("--table", words / "dev.tsv")
    unknown = latentalign("evaluate", words / "run", *table, "--tag", "middle")
    assert_mistake(unknown, "--tag middle", "choose from low, up")
    (words / "t").write_text("n a p\n", encoding="utf-8")
    (words / "s").write_text("nab\n", encoding="utf-8")
    for found in (
        latentalign("evaluate", words / "run", *table),
        latentalign("translate", words / "run", stdin="\n<up> nab\n<middle> nab\n"),
        latentalign("align", words / "run", "--source", words / "s", "--target", words / "t"),
    ):
        assert_mistake(found, "expected a tag at its beginning", "<low>", "knows low, up")
    latentalign("train", words / "recipe.yaml", "--out", words / "plain")
    assert_mistake(
        latentalign("evaluate", words / "plain", *table, "--tag", "low"), "--tag low", "trained without tags"
    )
    too_few = latentalign("check", train, "--set", "data.train.tags=[low]")
    assert_mistake(too_few, "data.train", "received 1 tags and 2 files")
    assert_mistake(latentalign("check", train, "--set", "data.valid.tags=[low, middle]"), "middle", "among")
    assert_mistake(latentalign("check", train, "--set", "data.valid.tags=null"), "data.valid.tags")
    assert_mistake(latentalign("check", train, "--set", "data.train.tags=[low, '<up>']"), "data.train.tags")
