"""Encoders, decoders and what connects them, as `model:` of a recipe names them."""

from torch import nn

from latentalign.translation.config import (
    EncoderConfig,
    ModelConfig,
    TransformerConfig,
    TransformerDecoderConfig,
)
from latentalign.translation.data.tokenizer import PAD
from latentalign.translation.network.encoder_decoder import Decoder, SequenceEncoder
from latentalign.translation.network.recurrent import BidirectionalLstm, LstmDecoder
from latentalign.translation.network.transformer import TransformerDecoder, TransformerEncoder


def build_encoder(
    config: EncoderConfig, *, input_size: int, size: int, layers: int, dropout: float
) -> SequenceEncoder:
    """An encoder of word vectors of `input_size`; `size` and `layers` are those of LSTMs."""
    if isinstance(config, TransformerConfig):
        return TransformerEncoder(input_size, config, dropout=dropout)
    return BidirectionalLstm(input_size, size, layers=layers, dropout=dropout)


def build_decoder(config: ModelConfig) -> Decoder:
    """A decoder of word vectors for the memory of the config's encoder."""
    if isinstance(config.decoder, TransformerDecoderConfig):
        return TransformerDecoder(
            config.embedding_size, config.state_size, config.decoder, dropout=config.dropout
        )
    return LstmDecoder(
        config.embedding_size,
        config.decoder_size,
        feed_size=config.state_size if config.input_feeding else 0,
        layers=config.decoder_layers,
        dropout=config.dropout,
    )


def build_bridge(config: ModelConfig) -> nn.Linear | None:
    """From a summary of the source to the state in which an LSTM starts, unless it starts at zero."""
    if isinstance(config.decoder, TransformerDecoderConfig) or config.initial_state == "zero":
        return None
    return nn.Linear(config.state_size, 2 * config.decoder_layers * config.decoder_size)


def build_embedding(words: int, size: int, reader: object) -> nn.Embedding:
    """Word vectors; those that a Transformer reads start small, since it scales them up by the root of their size."""
    embedding = nn.Embedding(words, size, padding_idx=PAD)
    if isinstance(reader, TransformerConfig):
        nn.init.normal_(embedding.weight, std=size**-0.5)
        nn.init.zeros_(embedding.weight[PAD])
    return embedding
