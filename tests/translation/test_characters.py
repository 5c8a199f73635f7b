"""Characters as pieces: what is one, what comes back, and what links join."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from latentalign.translation.config import TokenizerConfig
from latentalign.translation.data.assets import TranslationAssets
from latentalign.translation.data.characters import CharacterTokenizer, characters
from latentalign.translation.data.learn_tokenizers import count_words, learn_tokenizers
from latentalign.translation.data.tokenizer import END, UNKNOWN, WhitespaceTokenizer

PAIRS = [("été", "e t e"), ("ne\u0301", "n e"), ("a  hoàn", "ʔ aː ˧˧")]
SIDES = {"source": {"kind": "characters"}, "target": {"kind": "whitespace"}}


def learn(**settings):
    config = TokenizerConfig.model_validate(SIDES | settings)
    return learn_tokenizers(*count_words(PAIRS, config=config), config=config)


def test_a_combining_character_stays_with_its_letter_however_it_is_written() -> None:
    assert characters("ne\u0301") == characters("né") == ["n", "é"]
    assert characters("x\u0301y") == ["x\u0301", "y"]  # a pair for which Unicode has no single letter
    assert characters("e\u0301", form="NFD") == ["e\u0301"]
    assert characters("né", form="NFD", combine=False) == ["n", "e", "\u0301"]
    assert characters("한", form="NFD", combine=False) == ["ᄒ", "ᅡ", "ᆫ"]
    assert characters("  a \t b ") == ["a", " ", "b"]


def test_the_sides_have_tokenizers_of_their_own() -> None:
    source, target = learn()
    assert isinstance(source, CharacterTokenizer)
    assert isinstance(target, WhitespaceTokenizer)
    assert set(source.pieces[4:]) == set("étna hoà")
    assert set(target.pieces[4:]) == {"e", "t", "n", "ʔ", "aː", "˧˧"}


def test_a_letter_never_seen_is_unknown_and_the_others_are_not() -> None:
    source, _ = learn()
    pieces = source.encode("nжt")
    assert pieces[1] == UNKNOWN
    assert UNKNOWN not in (pieces[0], pieces[2])


@given(st.text(max_size=20), st.booleans())
def test_known_text_comes_back_composed(text: str, combine: bool) -> None:
    tokenizer = CharacterTokenizer(
        sorted(set(characters(text, form="NFD", combine=combine))), form="NFD", combine=combine
    )
    ids, words = tokenizer.encode_words(text)
    assert words == list(range(len(ids)))
    expected = unicodedata.normalize("NFC", " ".join(text.split()))
    assert tokenizer.decode(ids) == expected
    assert tokenizer.decode_words([*ids, END])[1] == [*words, -1]


def test_tokenizers_are_kept_in_the_run_folder(tmp_path) -> None:
    before = TranslationAssets(*learn(source={"kind": "characters", "normal_form": "NFD", "combine": False}))
    before.save(tmp_path)
    after = TranslationAssets.load(tmp_path)
    assert after.source.settings == before.source.settings
    assert after.target.settings == before.target.settings
    assert after.encode_source("né") == before.encode_source("né")
    assert len(after.source.encode("né")) == 3


def test_a_tag_is_one_piece_at_the_beginning_only(tmp_path) -> None:
    pairs = [("<fra> été", "e t e"), ("<vie>a <fra>", "a")]
    config = TokenizerConfig.model_validate(SIDES)
    tags = ("fra", "vie")
    sides = learn_tokenizers(*count_words(pairs, config=config, tags=tags), config=config, tags=tags)
    TranslationAssets(*sides, tags=tags).save(tmp_path)
    for source in (sides[0], TranslationAssets.load(tmp_path).source):
        assert source.words("<fra> été") == source.words("  <fra>été ") == ["<fra>", "é", "t", "é"]
        assert source.words("a <fra>") == ["a", " ", "<", "f", "r", "a", ">"]
        assert source.words("<deu>a") == ["<", "d", "e", "u", ">", "a"]
        assert UNKNOWN not in source.encode("<vie> été")
    assert TranslationAssets.load(tmp_path).tags == tags
    assert characters("<fra>a") == ["<", "f", "r", "a", ">", "a"]
