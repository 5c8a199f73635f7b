"""LSTMs over padded batches: both directions for encoders, step by step or all at once for the decoder."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from latentalign.translation.network.dropout import dropout
from latentalign.translation.network.encoder_decoder import Decoder, DecoderState, Memory, SequenceEncoder


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


def run_lstm(lstm: nn.Module, inputs: Tensor, state: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """Outputs [B,S,D] for inputs [B,S,E].

    On a CPU autocast is left aside: many processors have no LSTM kernel of low precision, and torch then fails.
    """
    if inputs.device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
        outputs: Tensor = lstm(inputs, state)[0]
        return outputs
    with torch.autocast("cpu", enabled=False):
        dtype = next(lstm.parameters()).dtype
        known = None if state is None else (state[0].to(dtype), state[1].to(dtype))
        return run_lstm(lstm, inputs.to(dtype), known)


class BidirectionalLstm(SequenceEncoder):
    """Two LSTMs a layer, each over plain padded tensors.

    The backward one reads each sequence reversed in place, so padding always comes last and never matters.
    This takes the fast kernel that packed sequences do not have on a CPU.
    """

    def __init__(self, input_size: int, size: int, *, layers: int, dropout: float) -> None:
        super().__init__()
        self.size = size
        inputs = [input_size, *[size] * (layers - 1)]
        self.forwards = nn.ModuleList(nn.LSTM(width, size // 2, batch_first=True) for width in inputs)
        self.backwards = nn.ModuleList(nn.LSTM(width, size // 2, batch_first=True) for width in inputs)
        self.dropout = dropout

    def forward(self, inputs: Tensor, mask: Tensor, *, padded: bool = True) -> Tensor:
        index = reversal_index(mask) if padded else None
        states = inputs
        for layer, (ahead, back) in enumerate(zip(self.forwards, self.backwards, strict=True)):
            if layer:
                states = dropout(states, self.dropout, self.training)
            backwards = reverse(run_lstm(back, reverse(states, index)), index)
            states = torch.cat([run_lstm(ahead, states), backwards], dim=-1)
        return states

    def summary(self, states: Tensor, mask: Tensor) -> Tensor:
        return final_states(states, mask)


def final_states(states: Tensor, mask: Tensor) -> Tensor:
    """What both directions know after reading everything: [B,S,D] -> [B,D]."""
    half = states.shape[2] // 2
    last = mask.sum(1).clamp(min=1) - 1
    rows = torch.arange(states.shape[0], device=states.device)
    return torch.cat([states[rows, last, :half], states[:, 0, half:]], dim=-1)


@dataclass(frozen=True)
class LstmState(DecoderState):
    """The state of the decoder; N rows, one for each hypothesis."""

    hidden: Tensor  # [L,N,D]
    cell: Tensor  # [L,N,D]
    feed: Tensor | None = None  # [N,M] expected context of the step before, with input feeding

    def select(self, index: Tensor) -> "LstmState":
        feed = None if self.feed is None else self.feed.index_select(0, index)
        return LstmState(self.hidden.index_select(1, index), self.cell.index_select(1, index), feed)


class LstmDecoder(Decoder):
    """An LSTM over target words and, with input feeding, over the contexts of the steps before."""

    def __init__(self, input_size: int, size: int, *, feed_size: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.size = size
        self.feeds = feed_size > 0
        self.lstm = nn.LSTM(
            input_size + feed_size, size, layers, batch_first=True, dropout=dropout if layers > 1 else 0
        )

    def start(self, states: Tensor, bridged: Tensor | None) -> LstmState:
        batch, layers = len(states), self.lstm.num_layers
        feed = states.new_zeros(batch, states.shape[2]) if self.feeds else None
        if bridged is None:
            zeros = states.new_zeros(layers, batch, self.size)
            return LstmState(zeros, zeros, feed)
        bridged = bridged.view(batch, 2 * layers, self.size).transpose(0, 1)
        return LstmState(torch.tanh(bridged[:layers]), bridged[layers:].contiguous(), feed)

    def all_steps(self, inputs: Tensor, memory: Memory) -> Tensor:
        """Outputs [B,T,D] for inputs [B,T,E], without input feeding."""
        state = memory.start
        assert isinstance(state, LstmState)
        return run_lstm(self.lstm, inputs, (state.hidden, state.cell))

    def one_step(self, inputs: Tensor, memory: Memory, state: DecoderState) -> tuple[Tensor, LstmState]:
        """For a single step this beats the kernel of whole sequences, which rearranges its weights at every call."""
        assert isinstance(state, LstmState)
        hiddens, cells = [], []
        below = inputs.flatten(0, 1)  # [N,E]
        if state.feed is not None:
            below = torch.cat([below, state.feed], dim=-1)
        for layer in range(self.lstm.num_layers):
            if layer:
                below = dropout(below, self.lstm.dropout, self.training)
            before = (state.hidden[layer], state.cell[layer])
            below, cell = torch.lstm_cell(below, before, *layer_weights(self.lstm, layer))
            hiddens.append(below)
            cells.append(cell)
        return below.view(*inputs.shape[:2], -1), LstmState(torch.stack(hiddens), torch.stack(cells))

    def feed(self, state: DecoderState, context: Tensor) -> LstmState:
        assert isinstance(state, LstmState)
        return replace(state, feed=context)


def layer_weights(lstm: nn.LSTM, layer: int) -> list[Tensor]:
    """Weights and biases of a layer: of its inputs, of its own state, and the two biases."""
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    return [lstm.get_parameter(f"{name}_l{layer}") for name in names]
