"""LSTMs over padded batches: both directions for encoders, step by step or all at once for the decoder."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from latentalign.translation.dropout import dropout


def reversal_index(mask: Tensor) -> Tensor:
    """Where every position comes from when each sequence is read backwards and its padding stays. [B,S]"""
    positions = torch.arange(mask.shape[1], device=mask.device)
    mirrored = mask.sum(1, keepdim=True) - 1 - positions
    return torch.where(mask, mirrored, positions)


def reverse(states: Tensor, index: Tensor | None) -> Tensor:
    """Read every sequence of states [B,S,D] backwards; without an index there is no padding."""
    if index is None:
        return states.flip(1)
    return states.gather(1, index[:, :, None].expand(-1, -1, states.shape[2]))


class BidirectionalLstm(nn.Module):
    """Two LSTMs a layer, each over plain padded tensors.

    The backward one reads each sequence reversed in place, so padding always comes last and never matters.
    This takes the fast kernel that packed sequences do not have on a CPU.
    """

    def __init__(self, input_size: int, size: int, *, layers: int, dropout: float) -> None:
        super().__init__()
        inputs = [input_size, *[size] * (layers - 1)]
        self.forwards = nn.ModuleList(nn.LSTM(width, size // 2, batch_first=True) for width in inputs)
        self.backwards = nn.ModuleList(nn.LSTM(width, size // 2, batch_first=True) for width in inputs)
        self.dropout = dropout

    def forward(self, inputs: Tensor, mask: Tensor, *, padded: bool = True) -> Tensor:
        """States [B,S,size] of inputs [B,S,D]; `padded=False` promises that the mask is all True."""
        index = reversal_index(mask) if padded else None
        states = inputs
        for layer, (ahead, back) in enumerate(zip(self.forwards, self.backwards, strict=True)):
            if layer:
                states = dropout(states, self.dropout, self.training)
            states = torch.cat([ahead(states)[0], reverse(back(reverse(states, index))[0], index)], dim=-1)
        return states


def final_states(states: Tensor, mask: Tensor) -> Tensor:
    """What both directions know after reading everything: [B,S,D] -> [B,D]."""
    half = states.shape[2] // 2
    last = mask.sum(1).clamp(min=1) - 1
    rows = torch.arange(states.shape[0], device=states.device)
    return torch.cat([states[rows, last, :half], states[:, 0, half:]], dim=-1)


@dataclass(frozen=True)
class DecoderState:
    """Where the decoder stands; N rows, one for each hypothesis."""

    hidden: Tensor  # [L,N,D]
    cell: Tensor  # [L,N,D]
    feed: Tensor | None = None  # [N,M] expected context of the step before, with input feeding

    def select(self, index: Tensor) -> "DecoderState":
        """The rows at `index`, in that order."""
        feed = None if self.feed is None else self.feed.index_select(0, index)
        return DecoderState(self.hidden.index_select(1, index), self.cell.index_select(1, index), feed)


class Decoder(nn.Module):
    """An LSTM over target words and, with input feeding, over the contexts of the steps before."""

    def __init__(self, input_size: int, size: int, *, feed_size: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.feed_size = feed_size
        self.lstm = nn.LSTM(
            input_size + feed_size, size, layers, batch_first=True, dropout=dropout if layers > 1 else 0
        )

    def all_steps(self, inputs: Tensor, state: DecoderState) -> Tensor:
        """Outputs [B,T,D] for inputs [B,T,E], without input feeding."""
        outputs: Tensor = self.lstm(inputs, (state.hidden, state.cell))[0]
        return outputs

    def one_step(self, inputs: Tensor, state: DecoderState) -> tuple[Tensor, Tensor, Tensor]:
        """The output [N,D] for inputs [N,·], and the new hidden and cell states [L,N,D].

        For a single step this beats the kernel of whole sequences, which rearranges its weights at every call.
        """
        hiddens, cells = [], []
        below = inputs
        for layer in range(self.lstm.num_layers):
            if layer:
                below = dropout(below, self.lstm.dropout, self.training)
            memory = (state.hidden[layer], state.cell[layer])
            below, cell = torch.lstm_cell(below, memory, *_weights(self.lstm, layer))
            hiddens.append(below)
            cells.append(cell)
        return below, torch.stack(hiddens), torch.stack(cells)

    def start_stepping(self, inputs: Tensor) -> "Stepper":
        """Prepare to run step by step: whatever does not wait for the step before is computed at once."""
        return Stepper(self, inputs)


def _weights(lstm: nn.LSTM, layer: int) -> list[Tensor]:
    """Weights and biases of a layer: of its inputs, of its own state, and the two biases."""
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    return [lstm.get_parameter(f"{name}_l{layer}") for name in names]


class Stepper:
    """The decoder with input feeding over given words: the loop holds only what has to wait.

    What the words add to the gates is one product for all steps, and so is the gradient of the weights.
    """

    def __init__(self, decoder: Decoder, inputs: Tensor) -> None:
        lstm = decoder.lstm
        words = inputs.shape[-1]
        self.dropout = lstm.dropout if lstm.training else 0.0
        self.cells: list[_Cell] = []
        for layer in range(lstm.num_layers):
            inward, recurrent, *biases = _weights(lstm, layer)
            bias = biases[0] + biases[1]
            if layer == 0:  # its input is words, all known, and a context that is not
                known, inward = inward[:, :words], inward[:, words:]
                bias = F.linear(inputs, known, bias).transpose(0, 1)  # [T,B,4D]
            gates = bias.expand(inputs.shape[1], inputs.shape[0], -1)  # [T,B,4D]
            self.cells.append(_Cell(torch.cat([inward, recurrent], dim=1), gates))

    def start(self, state: DecoderState) -> list[tuple[Tensor, Tensor]]:
        """Hidden and cell state of every layer."""
        return list(zip(state.hidden.unbind(0), state.cell.unbind(0), strict=True))

    def step(
        self, number: int, feed: Tensor, layers: list[tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """One step: the top output [B,D] and the new state of every layer."""
        after: list[tuple[Tensor, Tensor]] = []
        below = feed
        for layer, (cell, state) in enumerate(zip(self.cells, layers, strict=True)):
            if layer:
                below = dropout(below, self.dropout, True)
            after.append(cell.step(number, below, *state))
            below = after[-1][0]
        return below, after


class _Cell:
    """One layer over the steps of one batch."""

    def __init__(self, weight: Tensor, gates: Tensor) -> None:
        self._inputs: list[Tensor] = []
        self._weight = weight.detach()
        self._gates = _WithWeight.apply(gates, weight, self._inputs).unbind(0)  # type: ignore[no-untyped-call]

    def step(self, number: int, below: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        inputs = torch.cat([below, hidden], dim=1)
        if torch.is_grad_enabled():
            self._inputs.append(inputs.detach())
        gates = torch.addmm(self._gates[number], inputs, self._weight.t())
        into, keep, new, out = gates.chunk(4, dim=1)
        cell = torch.sigmoid(keep) * cell + torch.sigmoid(into) * torch.tanh(new)
        return torch.sigmoid(out) * torch.tanh(cell), cell


class _WithWeight(torch.autograd.Function):
    """Give a recurrent weight its gradient in one product once all steps are through.

    gates_t = given_t + W inputs_t: dL/dgates_t arrives here for every step t, and dL/dW = Σ_t dL/dgates_t
    inputs_tᵀ. Left to autograd, every step would write and add a gradient as large as W.
    """

    @staticmethod
    def forward(ctx: Any, gates: Tensor, weight: Tensor, inputs: list[Tensor]) -> Tensor:
        ctx.inputs = inputs  # filled while the steps run
        return gates.view_as(gates)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        inputs = torch.cat(ctx.inputs)  # [T·B,·]
        return gradient, gradient.reshape(inputs.shape[0], -1).t() @ inputs, None
