"""Transformers over source and target words: pre-norm blocks of torch's own attention, sinusoidal positions.

Positions are a formula, not a table: a sentence longer than all of training has positions like any other. The decoder
does not attend to the source unless asked to (`cross_layers`): what it knows of the source comes through z alone.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from latentalign.translation.config import TransformerConfig, TransformerDecoderConfig
from latentalign.translation.network.dropout import Dropout
from latentalign.translation.network.encoder_decoder import Decoder, DecoderState, Memory, SequenceEncoder


def positions(count: int, size: int, *, like: Tensor, first: int = 0) -> Tensor:
    """sin and cos of positions first..first+count−1 at geometrically growing wave lengths: [count,size]."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    place = torch.arange(first, first + count, device=like.device, dtype=dtype)
    half = (size + 1) // 2
    rate = torch.exp(torch.arange(half, device=like.device, dtype=dtype) * (-math.log(10_000.0) / half))
    angle = place[:, None] * rate  # [count,half]
    return torch.cat([angle.sin(), angle.cos()], dim=-1)[:, :size].to(like.dtype)


class Attention(nn.Module):
    """Attention of several heads, over the words themselves or over a memory of another size."""

    def __init__(self, width: int, heads: int, *, memory_size: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.memory = nn.Linear(memory_size, 2 * width)
        self.output = nn.Linear(width, width)

    def keys_and_values(self, states: Tensor) -> Tensor:
        """[B,S,M] -> [B,2,heads,S,width/heads], to be kept while the memory stays the same."""
        batch, length, _ = states.shape
        return self.memory(states).view(batch, length, 2, self.heads, -1).permute(0, 2, 3, 1, 4)

    def forward(
        self, inputs: Tensor, memory: Tensor, *, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """[B,T,width] -> [B,T,width], by keys and values [B,2,heads,S,·] and a mask [B,S]."""
        batch, length, width = inputs.shape
        query = self.query(inputs).view(batch, length, self.heads, -1).transpose(1, 2)
        allowed = None if mask is None else mask[:, None, None]
        keys, values = memory.unbind(1)
        found = F.scaled_dot_product_attention(query, keys, values, attn_mask=allowed, is_causal=causal)
        return self.output(found.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """x + attention(norm x), then x + attention to the source(norm x) where asked, then x + feed-forward(norm x)."""

    def __init__(self, config: TransformerConfig, *, dropout: float, cross_size: int | None = None) -> None:
        super().__init__()
        width = config.width
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, config.heads, memory_size=width)
        self.cross_norm = None if cross_size is None else nn.LayerNorm(width)
        self.cross = None if cross_size is None else Attention(width, config.heads, memory_size=cross_size)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, config.feed_forward)
        self.outer = nn.Linear(config.feed_forward, width)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        states: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        past: Tensor | None = None,
        source: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """States [N,T,width] of the next block, and keys and values of all words so far.

        `past` are those of the words before; `source` is what this block attends to besides, [B,2,heads,S,·] and its
        mask [B,S], where rows N = B·W are W hypotheses of each sentence.
        """
        normed = self.attention_norm(states)
        known = self.attention.keys_and_values(normed)
        if past is not None:
            known = torch.cat([past, known], dim=3)
        states = states + self.dropout(self.attention(normed, known, mask=mask, causal=causal))
        if self.cross is not None and self.cross_norm is not None:
            assert source is not None
            projected, real = source
            together = states.view(len(projected), -1, states.shape[-1])  # hypotheses share their source
            seen = self.cross(self.cross_norm(together), projected, mask=real)
            states = states + self.dropout(seen).view_as(states)
        inner = self.dropout(F.relu(self.inner(self.feed_forward_norm(states))))
        return states + self.dropout(self.outer(inner)), known


class _Entrance(nn.Module):
    """Word vectors as the first block reads them: as large as the positions, which are added."""

    def __init__(self, input_size: int, width: int) -> None:
        super().__init__()
        self.scale = math.sqrt(input_size)
        self.project = nn.Identity() if input_size == width else nn.Linear(input_size, width)

    def forward(self, inputs: Tensor, *, first: int = 0) -> Tensor:
        states: Tensor = self.project(inputs * self.scale)
        return states + positions(states.shape[1], states.shape[2], like=states, first=first)


class TransformerEncoder(SequenceEncoder):
    """Self-attention over all words of a sentence."""

    def __init__(self, input_size: int, config: TransformerConfig, *, dropout: float) -> None:
        super().__init__()
        self.size = config.width
        drop = dropout if config.dropout is None else config.dropout
        self.entrance = _Entrance(input_size, config.width)
        self.blocks = nn.ModuleList(Block(config, dropout=drop) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)

    def forward(self, inputs: Tensor, mask: Tensor, *, padded: bool = True) -> Tensor:
        states = self.entrance(inputs)
        for block in self.blocks:
            states, _ = block(states, mask=mask if padded else None)
        normed: Tensor = self.norm(states)
        return normed

    def summary(self, states: Tensor, mask: Tensor) -> Tensor:
        """The mean of the states of real words."""
        weights = mask.to(states.dtype)
        return (states * weights[..., None]).sum(1) / weights.sum(1, keepdim=True).clamp_min(1.0)


@dataclass(frozen=True)
class TransformerState(DecoderState):
    """Keys and values of the words so far, one tensor [N,2,heads,t,·] a block."""

    caches: tuple[Tensor, ...]

    @property
    def length(self) -> int:
        """How many words have been read."""
        return self.caches[0].shape[3]

    def select(self, index: Tensor) -> "TransformerState":
        return TransformerState(tuple(cache.index_select(0, index) for cache in self.caches))


class TransformerDecoder(Decoder):
    """Causal self-attention over target words; the lowest `cross_layers` blocks attend to the source, too."""

    def __init__(
        self, input_size: int, memory_size: int, config: TransformerDecoderConfig, *, dropout: float
    ) -> None:
        super().__init__()
        self.size = config.width
        drop = dropout if config.dropout is None else config.dropout
        self.entrance = _Entrance(input_size, config.width)
        sizes = [memory_size if layer < config.cross_layers else None for layer in range(config.layers)]
        self.blocks = nn.ModuleList(Block(config, dropout=drop, cross_size=size) for size in sizes)
        self.norm = nn.LayerNorm(config.width)
        self.heads = config.heads

    def start(self, states: Tensor, bridged: Tensor | None) -> TransformerState:
        nothing = states.new_zeros(len(states), 2, self.heads, 0, self.size // self.heads)
        return TransformerState((nothing,) * len(self.blocks))

    def project_source(self, states: Tensor) -> Tensor | None:
        """Keys and values of the source for every block that attends to it: [B,n,2,heads,S,·]."""
        crosses = [block.cross for block in self.blocks if isinstance(block, Block)]
        found = [cross.keys_and_values(states) for cross in crosses if cross is not None]
        return torch.stack(found, dim=1) if found else None

    def all_steps(self, inputs: Tensor, memory: Memory) -> Tensor:
        states = self.entrance(inputs)
        for layer, block in enumerate(self.blocks):
            states, _ = block(states, causal=True, source=_source_of(memory, layer))
        normed: Tensor = self.norm(states)
        return normed

    def one_step(
        self, inputs: Tensor, memory: Memory, state: DecoderState
    ) -> tuple[Tensor, TransformerState]:
        assert isinstance(state, TransformerState)
        states = self.entrance(inputs.flatten(0, 1)[:, None], first=state.length)  # [N,1,width]
        caches = []
        for layer, block in enumerate(self.blocks):
            states, cache = block(states, past=state.caches[layer], source=_source_of(memory, layer))
            caches.append(cache)
        return self.norm(states).view(*inputs.shape[:2], -1), TransformerState(tuple(caches))


def _source_of(memory: Memory, layer: int) -> tuple[Tensor, Tensor] | None:
    """What the block of this layer attends to, if it does."""
    if memory.projected is None or layer >= memory.projected.shape[1]:
        return None
    return memory.projected[:, layer], memory.mask
