"""Tokenizers: exact round trips and exact words, whatever the text."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from latentalign.errors import UserError
from latentalign.translation.config import TokenizerConfig
from latentalign.translation.data.assets import TranslationAssets
from latentalign.translation.data.learn_tokenizers import count_words, learn_tokenizers
from latentalign.translation.data.tokenizer import (
    END,
    PAD,
    SPECIALS,
    START,
    UNKNOWN,
    BpeTokenizer,
    Tokenizer,
    WhitespaceTokenizer,
)

PAIRS = [
    ("Der Hund läuft über die Straße .", "The dog runs across the street ."),
    ("Die Straßenbahn fährt , weil sie fährt .", "The tram runs because it runs ."),
    ("Hunde laufen schnell .", "Dogs run quickly ."),
] * 5


def learn(**settings: object) -> tuple[Tokenizer, Tokenizer]:
    config = TokenizerConfig.model_validate({"size": 160, "character_coverage": 1.0, **settings})
    return learn_tokenizers(*count_words(PAIRS), config=config)


JOINT = learn()

AWKWARD = [
    "▁ ▁▁ a▁b",  # the mark of sentencepiece itself
    "ﬁn ½ Å Å ﷺ",  # NFKC would change all of these
    "a\u200bb \u200d\u200d \ufeff",  # zero width
    "e\u0301 n\u0303\u0303 \u0301",  # combining characters, one on its own
    "👩‍👩‍👧‍👦 🇩🇪 𝔘",  # outside the basic plane
    "<s> </s> <unk> <pad> <0x41> \x00 \x7f",
    "日本語の テキスト",
    "الكلمة العربية",
    "a\u00a0b\u3000c\u2028d\x1ce",  # every kind of white space separates words
    "",
    "   ",
]


@given(st.text(max_size=40))
@pytest.mark.parametrize("side", [0, 1])
def test_any_text_comes_back_word_by_word(side: int, sentence: str) -> None:
    check_round_trip(JOINT[side], sentence)


@pytest.mark.parametrize("sentence", AWKWARD)
def test_awkward_text_comes_back(sentence: str) -> None:
    for tokenizer in (*JOINT, *learn(joint=False)):
        check_round_trip(tokenizer, sentence)


def check_round_trip(tokenizer: Tokenizer, sentence: str) -> None:
    words = sentence.split()
    ids, of_words = tokenizer.encode_words(sentence)
    assert ids == tokenizer.encode(sentence)
    assert tokenizer.decode(ids) == " ".join(words)
    # every word has pieces, in order, and decoding finds the same word for every piece
    assert sorted(set(of_words)) == list(range(len(words)))
    assert of_words == sorted(of_words)
    assert tokenizer.decode_words(ids) == (words, of_words)
    assert UNKNOWN not in ids
    assert all(len(SPECIALS) <= number < len(tokenizer) for number in ids)


@given(st.lists(st.integers(0, len(JOINT[1]) - 1), max_size=25))
@example([START, PAD, END])
def test_whatever_a_model_makes_up_has_words_that_fit_its_text(ids: list[int]) -> None:
    words, of_words = JOINT[1].decode_words(ids)
    text = JOINT[1].decode(ids)
    assert text.split() == words
    assert len(of_words) == len(ids)
    assert set(of_words) - {-1} == set(range(len(words)))


def test_subwords_of_one_word_share_its_index() -> None:
    ids, of_words = JOINT[0].encode_words("Straßenbahnhunde laufen")
    assert len(ids) > 2
    assert of_words == [0] * of_words.count(0) + [1] * of_words.count(1)


def test_a_joint_model_gives_each_language_only_what_it_uses() -> None:
    source, target = JOINT
    assert isinstance(source, BpeTokenizer)
    assert isinstance(target, BpeTokenizer)
    assert source.model == target.model
    assert "▁Straße" in source.pieces
    assert "▁Straße" not in target.pieces
    # a word of the other language is spelt with what is there
    assert target.decode(target.encode("Straßenbahn Straße")) == "Straßenbahn Straße"


def test_without_bytes_unseen_characters_are_unknown() -> None:
    source, _ = learn(byte_fallback=False)
    assert source.encode("Hund") == source.encode(" Hund ")
    assert UNKNOWN in source.encode("犬")
    assert "⁇" in source.decode(source.encode("犬"))


def test_whitespace_keeps_frequent_words_and_knows_no_others() -> None:
    counts = Counter({"a": 3, "b": 3, "c": 1, "d": 5})
    tokenizer, other = learn_tokenizers(
        counts, counts, config=TokenizerConfig(kind="whitespace", size=3, minimum_count=2)
    )
    assert isinstance(tokenizer, WhitespaceTokenizer)
    assert tokenizer.pieces[4:] == other.pieces[4:] == ["d", "a", "b"]
    assert tokenizer.encode("a  c d") == [5, UNKNOWN, 4]
    assert tokenizer.decode([5, 4, END]) == "a d"
    assert tokenizer.decode_words([5, UNKNOWN]) == (["a", "<unk>"], [0, 1])


def test_learning_is_deterministic_and_ignores_the_order_of_lines() -> None:
    config = TokenizerConfig(size=160, character_coverage=1.0)
    source, target = learn_tokenizers(*count_words(reversed(PAIRS)), config=config)
    assert (source.pieces, target.pieces) == tuple(tokenizer.pieces for tokenizer in learn())


def test_too_few_pieces_is_a_mistake_that_is_explained() -> None:
    with pytest.raises(UserError, match=r"cannot learn 5 pieces .* try another data.tokenizer.size"):
        learn(size=5)


@pytest.mark.parametrize("settings", [{}, {"joint": False}, {"kind": "whitespace"}])
def test_assets_come_back_from_a_folder(tmp_path: Path, settings: dict) -> None:
    assets = TranslationAssets(*learn(**settings), source_end=False)
    assets.save(tmp_path)
    files = {path.name for path in tmp_path.iterdir()} - {"vocabulary.json"}
    expected = {"bpe": {"tokenizer.model"}, "whitespace": set()}[settings.get("kind", "bpe")]
    assert files == (
        {"tokenizer.source.model", "tokenizer.target.model"} if "joint" in settings else expected
    )
    loaded = TranslationAssets.load(tmp_path)
    assert loaded.source_end is False
    for sentence in [*PAIRS[0], *PAIRS[1], *AWKWARD]:
        assert loaded.encode_source(sentence) == assets.encode_source(sentence)
        assert loaded.encode_target(sentence) == assets.encode_target(sentence)


def test_the_end_mark_belongs_to_no_word() -> None:
    assets = TranslationAssets(*JOINT)
    ids, of_words = assets.encode_source("Hund")
    assert (ids[-1], of_words[-1]) == (END, -1)
    assert TranslationAssets(*JOINT, source_end=False).encode_source("Hund")[0] == ids[:-1]
    ids, of_words = assets.encode_target("")
    assert (ids, of_words) == ([END], [-1])


def test_damaged_assets_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"vocabulary.json: no such file"):
        TranslationAssets.load(tmp_path)
    TranslationAssets(*JOINT).save(tmp_path)
    (tmp_path / "tokenizer.model").unlink()
    with pytest.raises(UserError, match=r"tokenizer.model: no such file"):
        TranslationAssets.load(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"something else")
    with pytest.raises(UserError, match=r"tokenizer.model: no sentencepiece model"):
        TranslationAssets.load(tmp_path)
    (tmp_path / "vocabulary.json").write_text("{")
    with pytest.raises(UserError, match=r"vocabulary.json: damaged"):
        TranslationAssets.load(tmp_path)


def test_the_cache_is_bounded_in_words_and_in_their_length():
    tokenizer = WhitespaceTokenizer(["ja", "nein"])
    tokenizer.cache_limit = 2
    for word in ("x" * 65, "ja", "nein", "doch"):
        assert tokenizer.encode_word(word) == tokenizer.encode_word(word)
    assert set(tokenizer._cache) == {"ja", "nein"}
