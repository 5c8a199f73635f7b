"""Words and units of lines in several scripts."""

import pytest

from latentalign.wordalign.text.words import read_line


def test_white_space_alone():
    line = read_line("  Das Haus.\tIst GROSS ", tokenise=False)
    assert line.words == ["Das", "Haus.", "Ist", "GROSS"]
    assert line.units == ["das", "haus.", "ist", "gross"]
    assert line.word_of == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("text", "words", "units", "word_of"),
    [
        (
            "Das EU-Budget (2020).",
            ["Das", "EU-Budget", "(2020)."],
            "das eu-budget ( 2020 ) .",
            [0, 1, 2, 2, 2, 2],
        ),
        ("l'homme -- oui", ["l'homme", "--", "oui"], "l ' homme - - oui", [0, 0, 0, 1, 1, 2]),
        ("我爱你。", ["我", "爱", "你", "。"], "我 爱 你 。", [0, 1, 2, 3]),
        ("我用iPhone 打字", ["我", "用", "iPhone", "打", "字"], "我 用 iphone 打 字", [0, 1, 2, 3, 4]),
        ("שלום, עולם!", ["שלום,", "עולם!"], "שלום , עולם !", [0, 0, 1, 1]),
        ("हिन्दी है।", ["हिन्दी", "है।"], "हिन्दी है ।", [0, 1, 1]),
        ("น้ำดี", ["น้", "ำ", "ดี"], "น้ ำ ดี", [0, 1, 2]),
        ("", [], "", []),
    ],
)
def test_the_built_in_tokeniser(text, words, units, word_of):
    line = read_line(text, tokenise=True)
    assert line.words == words
    assert line.units == units.split()
    assert line.word_of == word_of


def test_composed_and_decomposed_letters_are_one():
    assert read_line("Cafe\u0301", tokenise=False).units == read_line("café", tokenise=False).units
