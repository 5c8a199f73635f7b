"""The decoder with input feeding over known words, as training runs it.

Outputs and gradients are those of `LstmDecoder.one_step` called word by word, which is the obvious way (and how a
search runs it). Here the loop holds only what depends on the step before: what the words add to the gates is one
product for all steps, and the gradient of the recurrent weights is one product after the last step.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from latentalign.translation.network.dropout import dropout
from latentalign.translation.network.recurrent import LstmDecoder, LstmState, layer_weights


class FedDecoder:
    """A decoder on its way through words [B,T,E]; each step is fed the context [B,M] of the step before."""

    def __init__(self, decoder: LstmDecoder, words: Tensor, state: LstmState) -> None:
        lstm = decoder.lstm
        self.dropout = lstm.dropout if lstm.training else 0.0
        self._cells: list[_Cell] = []
        for layer, (hidden, cell) in enumerate(zip(state.hidden, state.cell, strict=True)):
            inward, recurrent, *biases = layer_weights(lstm, layer)
            known = biases[0] + biases[1]  # [4D]
            if layer == 0:  # its input is a word, known beforehand, and a context
                of_words, inward = inward[:, : words.shape[-1]], inward[:, words.shape[-1] :]
                known = F.linear(words, of_words, known).transpose(0, 1)  # [T,B,4D]
            known = known.expand(words.shape[1], words.shape[0], -1)
            self._cells.append(_Cell(torch.cat([inward, recurrent], dim=1), known, hidden, cell))

    def step(self, feed: Tensor) -> Tensor:
        """Read the next word and the context of the step before; the output [B,D]."""
        below = feed
        for layer, cell in enumerate(self._cells):
            if layer:
                below = dropout(below, self.dropout, True)
            below = cell.step(below)
        return below


class _Cell:
    """One layer: gates_t = known_t + W [below_t, hidden_(t−1)]."""

    def __init__(self, weight: Tensor, known: Tensor, hidden: Tensor, cell: Tensor) -> None:
        self._inputs: list[Tensor] = []
        self._weight = weight.detach()
        self._known = iter(_WithWeight.apply(known, weight, self._inputs).unbind(0))  # type: ignore[no-untyped-call]
        self._hidden, self._cell = hidden, cell

    def step(self, below: Tensor) -> Tensor:
        inputs = torch.cat([below, self._hidden], dim=1)
        if torch.is_grad_enabled():
            self._inputs.append(inputs.detach())
        gates = torch.addmm(next(self._known), inputs, self._weight.t())
        into, keep, new, out = gates.chunk(4, dim=1)
        self._cell = torch.sigmoid(keep) * self._cell + torch.sigmoid(into) * torch.tanh(new)
        self._hidden = torch.sigmoid(out) * torch.tanh(self._cell)
        return self._hidden


class _WithWeight(torch.autograd.Function):
    """The identity on the known part of the gates, which gives the weight W its gradient on the way back.

    dL/dknown_t = dL/dgates_t, and dL/dW = Σ_t dL/dgates_t inputs_tᵀ: all that the gradient of W needs arrives here
    together. The steps themselves use W without a graph. (Left to autograd, every step would write and add a
    gradient as large as W.)
    """

    @staticmethod
    def forward(ctx: Any, known: Tensor, weight: Tensor, inputs: list[Tensor]) -> Tensor:
        ctx.inputs, ctx.dtype = inputs, weight.dtype  # the list is filled while the steps run
        return known.view_as(known)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        inputs = torch.cat(ctx.inputs).to(ctx.dtype)  # [T·B,·]
        return gradient, gradient.reshape(inputs.shape[0], -1).to(ctx.dtype).t() @ inputs, None
