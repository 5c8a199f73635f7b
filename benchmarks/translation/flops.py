"""Floating-point operations of the translation model, counted on paper: matrix products only, nothing of padding.

A product of [m,k] and [k,n] counts 2·m·k·n. Its backward pass is two products of that size, so training counts three.
Functions such as tanh are left out, and so is what an implementation computes twice.
"""

from collections.abc import Iterable

from latentalign.translation.config import ModelConfig


def soft_training(config: ModelConfig, lengths: Iterable[tuple[int, int]], *, vocabulary: int) -> float:
    """Operations of a soft training step over sentence pairs of these lengths (source, target; end marks included)."""
    return 3.0 * sum(soft_forward(config, source, target, vocabulary) for source, target in lengths)


def soft_forward(config: ModelConfig, source: int, target: int, vocabulary: int) -> float:
    """Operations of the forward pass for one pair."""
    memory, decoder, hidden = (
        config.memory_size,
        config.decoder_size,
        config.hidden_size or config.decoder_size,
    )
    feed = memory if config.input_feeding else 0
    encoder = sum(
        2 * lstm(size, memory // 2) for size in _inputs(config.embedding_size, memory, config.encoder_layers)
    )
    reader = sum(
        lstm(size, decoder) for size in _inputs(config.embedding_size + feed, decoder, config.decoder_layers)
    )
    keys, queries, energies = _score(config)
    per_source = encoder + keys + 2 * memory * hidden
    per_target = reader + queries + 2 * decoder * hidden + 2 * hidden * vocabulary
    per_pair = energies + 2 * hidden + 2 * feed  # scores, the mixture of values, and of states fed back
    bridge = 2 * memory * 2 * config.decoder_layers * decoder if config.initial_state == "encoder" else 0
    return source * per_source + target * per_target + source * target * per_pair + bridge


def lstm(inputs: int, size: int) -> int:
    """One step of one LSTM."""
    return 2 * 4 * size * (inputs + size)


def _inputs(first: int, others: int, layers: int) -> list[int]:
    return [first, *[others] * (layers - 1)]


def _score(config: ModelConfig) -> tuple[int, int, int]:
    """Operations for each source position, for each target step, and for each pair of them."""
    memory, decoder, attention = config.memory_size, config.decoder_size, config.attention_size
    if config.score == "additive":
        return 2 * memory * attention, 2 * decoder * attention, 2 * attention
    if config.score == "general":
        return 2 * memory * decoder, 0, 2 * decoder
    return 0, 0, 2 * decoder
