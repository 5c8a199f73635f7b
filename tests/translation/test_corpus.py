"""Reading parallel text: formats, what is dropped, what is refused."""

import gzip
import json
from pathlib import Path

import pytest

from latentalign.errors import UserError
from latentalign.translation.config import PairFiles
from latentalign.translation.data.assets import TranslationAssets
from latentalign.translation.data.corpus import PairFilter, build_corpus, read_pairs
from latentalign.translation.data.tokenizer import END, WhitespaceTokenizer

PAIRS = [("a b", "x"), ("c", "y z"), ("b", "x\u2028y")]
ASSETS = TranslationAssets(WhitespaceTokenizer(["a", "b", "c"]), WhitespaceTokenizer(["x", "y", "z"]))


def read(folder: Path, **files: object) -> list[tuple[str, str]]:
    return list(read_pairs(PairFiles.model_validate(files), lambda name: folder / name))


def test_every_format_gives_the_same_pairs(tmp_path: Path) -> None:
    source, target = ("".join(pair[side] + "\n" for pair in PAIRS) for side in (0, 1))
    (tmp_path / "train.de").write_text(source, encoding="utf-8")
    with gzip.open(tmp_path / "train.en.gz", "wt", encoding="utf-8") as stream:
        stream.write(target)
    table = "id\ten\tde\n" + "".join(f"{n}\t{y}\t{x}\n" for n, (x, y) in enumerate(PAIRS))
    with gzip.open(tmp_path / "pairs.tsv.gz", "wt", encoding="utf-8") as stream:
        stream.write(table)
    (tmp_path / "pairs.jsonl").write_text(
        "".join(json.dumps({"de": x, "en": y}) + "\n" for x, y in PAIRS), encoding="utf-8"
    )
    columns = {"source_column": "de", "target_column": "en"}
    assert read(tmp_path, source="train.de", target="train.en.gz") == PAIRS
    assert read(tmp_path, table="pairs.tsv.gz", **columns) == PAIRS
    assert read(tmp_path, table="pairs.jsonl", **columns) == PAIRS
    assert read(tmp_path, source=["train.de"] * 2, target=["train.en.gz"] * 2) == PAIRS * 2


def test_what_is_dropped_is_counted_with_its_reason() -> None:
    pairs = [
        ("a b", "x"),
        ("", "x"),
        ("a", " \t"),
        ("a b c a", "x"),
        ("a b c", "x"),
        ("a", "x y z y"),
        ("c", "z"),
    ]
    corpus = build_corpus(iter(pairs), ASSETS, keep=PairFilter(max_length=3, max_ratio=2.0), name="train.de")
    assert corpus.lines.tolist() == [1, 7]
    assert [corpus.source[index].tolist() for index in range(2)] == [[4, 5, END], [6, END]]
    assert [corpus.target[index].tolist() for index in range(2)] == [[4, END], [6, END]]
    assert str(corpus.report) == (
        "train.de: read 7 pairs, kept 2, dropped 5 "
        "(2 over 3 pieces, 1 over a length ratio of 2, 2 with an empty side)"
    )


def test_nothing_left_is_refused_with_the_account() -> None:
    with pytest.raises(
        UserError, match=r"read 2 pairs, kept 0, dropped 2 \(1 over 2 pieces, 1 with an empty side\)"
    ):
        build_corpus(iter([("a b c", "x"), ("", "")]), ASSETS, keep=PairFilter(max_length=2), name="train.de")


@pytest.mark.parametrize(("source", "target"), [(5, 3), (3, 5), (0, 2)])
def test_files_of_different_length_name_both_counts(tmp_path: Path, source: int, target: int) -> None:
    (tmp_path / "a").write_text("word\n" * source)
    (tmp_path / "b").write_text("word\n" * target)
    with pytest.raises(UserError, match=rf"/a has {source} lines but .*/b has {target};"):
        read(tmp_path, source="a", target="b")


def test_missing_files_and_bad_bytes_are_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\n")
    with pytest.raises(UserError, match=r"nowhere: no such file"):
        read(tmp_path, source="a", target="nowhere")
    (tmp_path / "b").write_bytes(b"good\nba\xff\n")
    with pytest.raises(UserError, match=r"/b, line 2: expected UTF-8 text, found byte 0xff"):
        read(tmp_path, source="a", target="b")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.tsv", "de\tfr\na\tb\n", r"t.tsv: no column 'en' in its first line; found de, fr"),
        ("t.tsv", "de\ten\na\tb\na\n", r"t.tsv, line 3: expected 2 columns, found 1"),
        ("t.tsv", "", r"t.tsv: no column 'de'"),
        ("t.jsonl", '{"de": "a", "en": "b"}\n{"de": 3, "en": "b"}\n', r"line 2: .* text under 'de'"),
        ("t.jsonl", "[1]\n", r"line 1: expected a JSON object with text"),
        ("t.jsonl", "nonsense\n", r"line 1: expected a JSON object"),
        ("t.csv", "de,en\n", r"t.csv: expected a table named .tsv or .jsonl"),
    ],
)
def test_tables_that_do_not_fit_are_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=message):
        read(tmp_path, table=name, source_column="de", target_column="en")


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"source": "a"},
        {"table": "t.tsv"},
        {"source": "a", "target": "b", "table": "t", "source_column": "x", "target_column": "y"},
    ],
)
def test_a_recipe_must_give_files_or_a_table(files: dict) -> None:
    with pytest.raises(ValueError, match="expected either source and target"):
        PairFiles.model_validate(files)


def test_lists_of_files_go_one_for_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="2 source files but 1 target files"):
        read(tmp_path, source=["a", "b"], target="c")
