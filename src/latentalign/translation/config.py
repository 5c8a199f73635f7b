"""What a recipe may say about translation: its data and its model. Defaults live here and nowhere else."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveInt,
    field_validator,
    model_validator,
)

OneOrMore = str | list[str]
Layers = Annotated[int, Field(ge=1, le=64)]
Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]


def listed(names: OneOrMore | None) -> list[str]:
    """Always a list."""
    return [names] if isinstance(names, str) else list(names or [])


class TranslationSection(BaseModel):
    """A part of a recipe: unknown keys are refused, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PairFiles(TranslationSection):
    """Parallel text: two files (or lists of files) line by line, or one table with named or numbered columns."""

    source: OneOrMore | None = None
    target: OneOrMore | None = None
    table: OneOrMore | None = None  # .tsv or .jsonl, plain or gzipped
    # named by the header line of a .tsv, or the keys of .jsonl; a number from 1 on in a .tsv that has no header line
    source_column: str | PositiveInt | None = None
    target_column: str | PositiveInt | None = None
    links: OneOrMore | None = None  # word links, line for line, for `model.external_posterior`
    # one name for each table or pair of files, as a language's: their sources begin with it, as in `<ita> ciao`
    tags: list[Annotated[str, Field(pattern=r"^[^<>\s]+$")]] | None = None

    @model_validator(mode="after")
    def _one_way_only(self) -> "PairFiles":
        files = self.source is not None and self.target is not None
        columns = self.source_column is not None and self.target_column is not None
        if columns and isinstance(self.source_column, int) != isinstance(self.target_column, int):
            raise ValueError("expected source_column and target_column to be two names or two numbers")
        table = self.table is not None and columns
        if files == table or (files and self.table is not None):
            raise ValueError(
                "expected either source and target (two files) or table, source_column and target_column"
            )
        if self.tags is not None and len(self.tags) != len(listed(self.table or self.source)):
            raise ValueError(
                f"expected as many tags as there are tables or source files, received {len(self.tags)} tags and "
                f"{len(listed(self.table or self.source))} files"
            )
        return self


class SideTokenizerConfig(TranslationSection):
    """How text becomes pieces."""

    kind: Literal["bpe", "whitespace", "characters"] = "bpe"
    # pieces of a sentencepiece model besides bytes; the most words or characters with the other kinds
    size: Annotated[int, Field(ge=1, le=10_000_000)] = 8000
    byte_fallback: bool = True  # bpe: an unseen character becomes bytes, so that every text can be given back
    character_coverage: Annotated[float, Field(gt=0.9, le=1.0)] = 0.9999
    minimum_count: PositiveInt = 1  # whitespace, characters: rarer ones are unknown
    normal_form: Literal["NFC", "NFD", "NFKC", "NFKD"] = "NFC"  # characters: Unicode's, before they are cut
    # characters: a combining character stays with its letter; false cuts at every code point
    combine: bool = True


class TokenizerConfig(SideTokenizerConfig):
    """The tokenizers of both sides: alike, unless a side has settings of its own."""

    joint: bool = True  # one sentencepiece model for both languages, where both sides are alike
    source: SideTokenizerConfig | None = None
    target: SideTokenizerConfig | None = None

    @property
    def sides(self) -> tuple[SideTokenizerConfig, SideTokenizerConfig]:
        """What holds for the source and for the target."""
        return self.source or self, self.target or self

    @property
    def is_joint(self) -> bool:
        """Whether both sides share one sentencepiece model."""
        return self.joint and self.kind == "bpe" and self.source is None and self.target is None


class DataConfig(TranslationSection):
    """`data:` of a translation recipe."""

    folder: str = "."  # file names below are relative to it
    train: PairFiles
    valid: PairFiles
    tokenizer: TokenizerConfig = TokenizerConfig()
    prepared: str | None = None  # a folder written by `latentalign prepare`: text is not read again
    source_end: bool = True  # the source ends with a mark, which words without a source may align to
    max_length: PositiveInt = 100  # pieces a side; longer pairs are left out of training
    max_ratio: Annotated[float, Field(ge=1.0)] | None = None  # longer side over shorter side, in pieces
    batch_by: Literal["sentences", "tokens"] = "sentences"
    batch_size: PositiveInt = 64  # sentence pairs, or padded target positions with `tokens`

    @property
    def splits(self) -> dict[str, PairFiles]:
        """The pairs to train and to validate on, by name."""
        return {"train": self.train, "valid": self.valid}

    @model_validator(mode="after")
    def _tags_are_known(self) -> "DataConfig":
        unseen = set(self.valid.tags or ()) - set(self.train.tags or ())
        if unseen or (self.train.tags is None) != (self.valid.tags is None):
            raise ValueError(
                f"expected data.valid.tags to be among data.train.tags, received {self.valid.tags} "
                f"and {self.train.tags}"
            )
        return self

    def path(self, name: str) -> Path:
        """A file of the recipe, relative to the data folder unless absolute."""
        return Path(self.folder) / name


class LstmConfig(TranslationSection):
    """An LSTM; `memory_size`, `encoder_layers`, `decoder_size` and so on beside it say how large."""

    name: Literal["lstm"] = "lstm"


class TransformerConfig(TranslationSection):
    """Self-attention blocks with the norm before each part; positions are sinusoidal, of any length."""

    name: Literal["transformer"] = "transformer"
    layers: Layers = 3
    heads: PositiveInt = 4
    width: PositiveInt = 256
    feed_forward: PositiveInt = 1024
    dropout: Fraction | None = None  # inside the blocks; as the model's unless given

    @model_validator(mode="after")
    def _heads_fit(self) -> "TransformerConfig":
        if self.width % self.heads:
            raise ValueError(
                f"expected a width that its heads can share, received width {self.width} and heads {self.heads}; "
                f"try width {self.heads * max(1, round(self.width / self.heads))}"
            )
        return self


class TransformerDecoderConfig(TransformerConfig):
    """The same with a causal mask."""

    cross_layers: Annotated[int, Field(ge=0)] = 0  # the lowest ones attend to the source beside the alignment

    @model_validator(mode="after")
    def _cross_layers_exist(self) -> "TransformerDecoderConfig":
        if self.cross_layers > self.layers:
            raise ValueError(
                f"expected cross_layers up to the {self.layers} layers there are, received {self.cross_layers}"
            )
        return self


def _named(choice: Any) -> Any:
    """A choice by its name alone has its default settings."""
    return {"name": choice} if isinstance(choice, str) else choice


Named = BeforeValidator(_named)
EncoderConfig = Annotated[LstmConfig | TransformerConfig, Field(discriminator="name"), Named]
DecoderConfig = Annotated[LstmConfig | TransformerDecoderConfig, Field(discriminator="name"), Named]


class InferenceNetworkConfig(TranslationSection):
    """The network of the posterior q(z | x, y): two encoders and a bilinear score."""

    encoder: EncoderConfig = LstmConfig()  # of the source, and another one of the target
    memory_size: PositiveInt = 512  # of LSTMs, both directions together
    layers: Layers = 1
    dropout: Fraction | None = None  # as the model's unless given
    from_prior: bool = False  # q ∝ p · exp(score), as the exact posterior is p · f
    # As the model's unless given. A chain as prior may have a chain (with jumps of its own) or `categorical` as q.
    alignment: str | dict[str, Any] | None = None

    @field_validator("alignment")
    @classmethod
    def _alignment_is_known(cls, alignment: str | dict[str, Any] | None) -> str | dict[str, Any] | None:
        if alignment is not None:
            from latentalign.translation.network.latents import check_latent

            check_latent(alignment)
        return alignment


class ExternalPosteriorConfig(TranslationSection):
    """q(z | x, y) from the links of `data.train.links` in place of an inference network."""

    smoothing: Fraction = 0.01  # this share of every row is spread evenly: no link is quite sure


class ModelConfig(TranslationSection):
    """`model:` of a translation recipe."""

    embedding_size: PositiveInt = 256
    encoder: EncoderConfig = LstmConfig()  # lstm, transformer, or {name: transformer, layers: …}
    decoder: DecoderConfig = LstmConfig()
    memory_size: PositiveInt = 512  # of an LSTM as encoder, both directions together
    encoder_layers: Layers = 1  # of an LSTM
    decoder_size: PositiveInt = 512  # of an LSTM
    decoder_layers: Layers = 1  # of an LSTM
    shared_embeddings: bool = False  # target word vectors are the weights of f's last layer, too
    hidden_size: PositiveInt | None = None  # of tanh(A x + B x̃); the decoder's size unless given
    score: Literal["additive", "dot", "general"] = "additive"
    attention_size: PositiveInt = 256
    # or chain, dirichlet, logistic-normal, gaussian-context, {name: …, normalizer: …}
    alignment: str | dict[str, Any] = "categorical"
    input_feeding: bool = False  # feed the expected context of a step into the next one
    initial_state: Literal["encoder", "zero"] = "encoder"  # where an LSTM as decoder starts
    dropout: Fraction = 0.3  # of word vectors, decoder outputs and between layers
    # Of the memory itself. A mixture averages this noise away over its positions, a single position keeps all of
    # it: what regularises soft attention punishes a sharp alignment.
    memory_dropout: Fraction = 0.0
    # ± this for every weight; torch's own if none
    uniform_init: Annotated[float, Field(gt=0.0)] | None = None
    inference_network: InferenceNetworkConfig = InferenceNetworkConfig()
    external_posterior: ExternalPosteriorConfig | None = None

    @field_validator("alignment")
    @classmethod
    def _alignment_is_known(cls, alignment: str | dict[str, Any]) -> str | dict[str, Any]:
        from latentalign.translation.network.latents import (
            check_latent,  # torch takes seconds, a mistyped key should not
        )

        check_latent(alignment)
        return alignment

    @model_validator(mode="after")
    def _sizes_fit(self) -> "ModelConfig":
        if self.memory_size % 2 or self.inference_network.memory_size % 2:
            raise ValueError("memory_size is shared by two directions: expected an even number")
        if self.score == "dot" and self.query_size != self.state_size:
            raise ValueError(
                f"score dot needs decoder_size = memory_size, received {self.query_size} and "
                f"{self.state_size}; use general or additive otherwise"
            )
        if self.shared_embeddings and (self.hidden_size or self.query_size) != self.embedding_size:
            raise ValueError(
                f"shared_embeddings needs hidden_size = embedding_size, received "
                f"{self.hidden_size or self.query_size} and {self.embedding_size}"
            )
        if self.input_feeding and not isinstance(self.decoder, LstmConfig):
            raise ValueError(
                "input_feeding makes every step wait for the one before, and a Transformer reads all of them at once: "
                "expected decoder: lstm with it; leave it out, or let cross_layers look at the source"
            )
        return self

    @property
    def state_size(self) -> int:
        """Of the memory's states, whatever the encoder is."""
        return self.encoder.width if isinstance(self.encoder, TransformerConfig) else self.memory_size

    @property
    def query_size(self) -> int:
        """Of the decoder's queries, whatever it is."""
        return self.decoder.width if isinstance(self.decoder, TransformerConfig) else self.decoder_size


SECTIONS = (DataConfig, ModelConfig)
