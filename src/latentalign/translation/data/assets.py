"""What a translation model needs besides its weights: the tokenizers, kept in the run folder."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentalign.errors import UserError
from latentalign.files import read_json, require_file, write_atomic
from latentalign.translation.data.characters import CharacterTokenizer
from latentalign.translation.data.tags import split_tag
from latentalign.translation.data.tokenizer import END, BpeTokenizer, Tokenizer, WhitespaceTokenizer

VOCABULARY = "vocabulary.json"
_JOINT = "tokenizer.model"
_SEPARATE = {"source": "tokenizer.source.model", "target": "tokenizer.target.model"}


@dataclass(frozen=True)
class TranslationAssets:
    """Tokenizers of both sides, whether the source ends with a mark of its own, and what tags it may begin with."""

    source: Tokenizer
    target: Tokenizer
    source_end: bool = True
    tags: tuple[str, ...] = ()

    @property
    def sides(self) -> dict[str, Tokenizer]:
        """The tokenizers by the name of their side."""
        return {"source": self.source, "target": self.target}

    def source_pieces(self, sentence: str) -> list[int]:
        """Pieces of a source, without the end mark."""
        self._require_tag(sentence)
        return self.source.encode(sentence)

    def _require_tag(self, sentence: str) -> None:
        """A model of several languages has never seen a source without a tag."""
        if self.tags and sentence.strip() and not split_tag(sentence, self.tags)[0]:
            raise UserError(
                f"source {sentence[:20]!r}: expected a tag at its beginning, as in '<{self.tags[0]}> …'; "
                f"the run knows {', '.join(self.tags)}"
            )

    def encode_source(self, sentence: str) -> tuple[list[int], list[int]]:
        """Pieces as the encoder reads them, and the word of every piece (−1 for the end mark)."""
        self._require_tag(sentence)
        ids, words = self.source.encode_words(sentence)
        return ([*ids, END], [*words, -1]) if self.source_end else (ids, words)

    def encode_target(self, sentence: str) -> tuple[list[int], list[int]]:
        """Pieces as the decoder predicts them, end included, and the word of every piece (−1 for the end)."""
        ids, words = self.target.encode_words(sentence)
        return [*ids, END], [*words, -1]

    def save(self, folder: Path) -> None:
        """Write the tokenizers into a run folder."""
        described: dict[str, object] = {"version": 1, "source_end": self.source_end, "tags": self.tags}
        models = [side.model for side in self.sides.values() if isinstance(side, BpeTokenizer)]
        for stale in (_JOINT, *_SEPARATE.values()):
            (folder / stale).unlink(missing_ok=True)
        joint = len(models) == 2 and models[0] == models[1]
        for name, side in self.sides.items():
            described[name] = side.settings
            if isinstance(side, BpeTokenizer):
                write_atomic(folder / (_JOINT if joint else _SEPARATE[name]), side.model)
        write_atomic(folder / VOCABULARY, json.dumps(described, ensure_ascii=False) + "\n")

    def files(self, folder: Path) -> list[Path]:
        """Where `save` put the tokenizers."""
        models = [folder / name for name in (_JOINT, *_SEPARATE.values())]
        return [folder / VOCABULARY, *(path for path in models if path.is_file())]

    @classmethod
    def load(cls, folder: Path) -> "TranslationAssets":
        """Read the tokenizers of a run folder."""
        path = folder / VOCABULARY
        try:
            described = read_json(path, "the vocabulary that training wrote")
            tags = tuple(map(str, described.get("tags", ())))  # older runs have none
            source = _load_side(folder, "source", described["source"], tags)
            target = _load_side(folder, "target", described["target"])
            return cls(source, target, source_end=bool(described["source_end"]), tags=tags)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            raise UserError(f"{path}: damaged; expected the vocabulary that training wrote") from None


def _load_side(folder: Path, name: str, described: dict[str, Any], tags: tuple[str, ...] = ()) -> Tokenizer:
    if described["kind"] == "whitespace":
        return WhitespaceTokenizer(described["words"])
    if described["kind"] == "characters":
        return CharacterTokenizer(
            described["characters"], form=described["form"], combine=described["combine"], tags=tags
        )
    path = folder / _SEPARATE[name]
    path = path if path.exists() else folder / _JOINT
    model = require_file(path, "the tokenizer that training wrote").read_bytes()
    try:
        return BpeTokenizer(model, described["pieces"])
    except UserError:
        raise UserError(
            f"{path}: no sentencepiece model; expected the tokenizer that training wrote, copy the run again"
        ) from None
