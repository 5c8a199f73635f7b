"""Links from the heads of a Transformer's ordinary attention to the source, as its users read them off.

`attention_links` gives the links of every head, and of the same heads one step later: the query of step t + 1 is the
first that has read word t, so that its attention often fits word t better than that of step t, which predicts it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

import latentalign as la
from latentalign.text.links import Links
from latentalign.text.symmetrise import decode_links
from latentalign.translation.align import word_probs
from latentalign.translation.data.dataset import make_batch
from latentalign.translation.network.transformer import Attention, Block

PRIOR = "prior"  # z's own attention, before the word is known


def attention_weights(attention: Attention, inputs: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
    """What `attention` gives every position of a memory: [B,heads,T,S], from its own arguments."""
    batch, length, _ = inputs.shape
    query = attention.query(inputs).view(batch, length, attention.heads, -1).transpose(1, 2)
    keys = memory[:, 0]  # [B,heads,S,·]
    logits = query @ keys.transpose(-1, -2) / keys.shape[-1] ** 0.5
    return logits.masked_fill(~mask[:, None, None], -torch.inf).softmax(-1)


@contextmanager
def record_heads(model: Any) -> Iterator[dict[str, Tensor]]:
    """While open, the weights [B,T,S] of every head that attends to the source in the newest forward pass."""
    found: dict[str, Tensor] = {}

    def record(layer: int) -> Any:
        def keep(part: Attention, arguments: tuple[Tensor, Tensor], options: dict[str, Tensor]) -> None:
            weights = attention_weights(part, *arguments, options["mask"])
            found.update({f"layer {layer}, head {head + 1}": weights[:, head] for head in range(part.heads)})

        return keep

    blocks = [block for block in model.decoder.blocks if isinstance(block, Block) and block.cross is not None]
    handles = [
        block.cross.register_forward_pre_hook(record(layer), with_kwargs=True)
        for layer, block in enumerate(blocks, start=1)
    ]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def one_step_later(weights: Tensor) -> Tensor:
    """Each step has the weights of the next [T,S]; the last one, which predicts the end mark, keeps its own."""
    return torch.cat([weights[1:], weights[-1:]])


@torch.no_grad()
def attention_links(run: la.Run, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, bool], list[Links]]:
    """The likeliest links of all pairs by z's prior and by each head, at their own step and (True) one step later."""
    aligner = run.aligner()
    links: dict[tuple[str, bool], list[Links]] = {}
    for pair in pairs:
        pieces = aligner.encode(*pair)
        shape = (len(pieces.target_words), len(pieces.source_words))
        with record_heads(run.model) as heads:
            problem = run.model.problem(make_batch([pieces.source], [pieces.target]).to(run.device))
        for name, weights in {PRIOR: problem.prior.alignment_probs(), **heads}.items():
            for later, table in ((False, weights[0]), (True, one_step_later(weights[0]))):
                words = word_probs(table.cpu(), pieces.target_index, pieces.source_index, shape=shape)
                links.setdefault((name, later), []).append(Links(frozenset(decode_links(words))))
    return links
