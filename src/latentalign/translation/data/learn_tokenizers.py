"""Learning the pieces of both languages from training text."""

import io
from collections import Counter
from collections.abc import Collection, Iterable

from latentalign.errors import UserError
from latentalign.translation.config import SideTokenizerConfig, TokenizerConfig
from latentalign.translation.data.characters import CharacterTokenizer, characters
from latentalign.translation.data.tokenizer import (
    END,
    ESCAPED_MARK,
    PAD,
    SPACE_MARK,
    SPECIALS,
    START,
    UNKNOWN,
    BpeTokenizer,
    Tokenizer,
    WhitespaceTokenizer,
)


def count_words(
    pairs: Iterable[tuple[str, str]], *, config: TokenizerConfig | None = None, tags: Collection[str] = ()
) -> tuple[Counter[str], Counter[str]]:
    """How often every word occurs on either side; every character, where characters are the pieces.

    Sources may begin with one of `tags`.
    """
    source, target = (config or TokenizerConfig()).sides
    counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for left, right in pairs:
        counts[0].update(_words(left, source, tags))
        counts[1].update(_words(right, target))
    return counts


def _words(text: str, side: SideTokenizerConfig, tags: Collection[str] = ()) -> list[str]:
    if side.kind == "characters":
        return characters(text, form=side.normal_form, combine=side.combine, tags=tags)
    return text.split()


def learn_tokenizers(
    source: Counter[str], target: Counter[str], *, config: TokenizerConfig, tags: Collection[str] = ()
) -> tuple[Tokenizer, Tokenizer]:
    """Learn the pieces of both languages from the counts of their words."""
    if config.is_joint:
        model = _learn_bpe(source + target, config)
        return _narrowed(model, source), _narrowed(model, target)
    left, right = config.sides
    return _learn_side(source, left, tags), _learn_side(target, right)


def _learn_side(counts: Counter[str], side: SideTokenizerConfig, tags: Collection[str] = ()) -> Tokenizer:
    if side.kind == "bpe":
        return _narrowed(_learn_bpe(counts, side), counts)
    frequent = _frequent(counts, side)
    if side.kind == "characters":
        return CharacterTokenizer(frequent, form=side.normal_form, combine=side.combine, tags=tags)
    return WhitespaceTokenizer(frequent)


def _frequent(counts: Counter[str], side: SideTokenizerConfig) -> list[str]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[: side.size]
    return [word for word, count in ordered if count >= side.minimum_count]


def _learn_bpe(counts: Counter[str], config: SideTokenizerConfig) -> bytes:
    import sentencepiece

    writer = io.BytesIO()
    # sorted, so that the same text in another order gives the same pieces; the longest "words" are noise that
    # sentencepiece would refuse
    lines = (
        f"{word.replace(SPACE_MARK, ESCAPED_MARK)}\t{count}"
        for word, count in sorted(counts.items())
        if len(word) <= 1000
    )
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines,
            model_writer=writer,
            input_format="tsv",
            model_type="bpe",
            vocab_size=config.size + (256 if config.byte_fallback else 0),
            hard_vocab_limit=False,  # a small corpus has fewer pieces than asked for
            normalization_rule_name="identity",
            byte_fallback=config.byte_fallback,
            character_coverage=config.character_coverage,
            pad_id=PAD,
            unk_id=UNKNOWN,
            bos_id=START,
            eos_id=END,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise UserError(
            f"tokenizer: cannot learn {config.size} pieces from {len(counts)} different words "
            f"({str(error).split('] ')[-1].strip()}); try another data.tokenizer.size"
        ) from None
    return writer.getvalue()


def _narrowed(model: bytes, counts: Counter[str]) -> BpeTokenizer:
    """Keep what this language needs: pieces it uses, every character, and bytes that can occur."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    kept = set(range(len(SPECIALS)))
    for word in counts:
        kept.update(processor.encode(word.replace(SPACE_MARK, ESCAPED_MARK)))
    pieces = [processor.id_to_piece(number) for number in range(len(processor))]
    characters = {piece for number, piece in enumerate(pieces) if len(piece) == 1 and number >= len(SPECIALS)}
    for number, piece in enumerate(pieces):
        if processor.is_byte(number):
            value = int(piece[3:5], 16)
            written = value < 0x80 and (chr(value) in characters or chr(value).isspace())
            impossible = value in (0xC0, 0xC1) or value > 0xF4  # never in UTF-8
            if not written and not impossible:
                kept.add(number)
        elif piece in characters:
            kept.add(number)
    return BpeTokenizer(model, sorted(kept))
