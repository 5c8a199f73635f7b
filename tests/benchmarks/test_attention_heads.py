"""Reading links off ordinary attention: the weights are those that the network used."""

import pytest
import torch
from benchmarks.attention_heads import attention_weights, one_step_later, record_heads

from latentalign.translation.config import ModelConfig
from latentalign.translation.data.dataset import make_batch
from latentalign.translation.network.model import TranslationModel
from latentalign.translation.network.transformer import Attention

SIZES = {"name": "transformer", "layers": 2, "heads": 2, "width": 8, "feed_forward": 8}


def test_weights_give_what_the_attention_gives() -> None:
    torch.manual_seed(1)
    attention = Attention(8, 2, memory_size=6).double()
    inputs, states = torch.randn(3, 4, 8).double(), torch.randn(3, 5, 6).double()
    mask = torch.arange(5) < torch.tensor([5, 3, 1])[:, None]
    memory = attention.keys_and_values(states)
    weights = attention_weights(attention, inputs, memory, mask)  # [B,heads,T,S]
    assert (weights[1, :, :, 3:] == 0).all()
    heads = (weights @ memory[:, 1]).transpose(1, 2).flatten(2)  # [B,T,width]
    torch.testing.assert_close(attention.output(heads), attention(inputs, memory, mask=mask))


@pytest.mark.parametrize(("cross_layers", "heads"), [(0, 0), (1, 2), (2, 4)])
def test_heads_of_all_layers_that_attend_to_the_source(cross_layers: int, heads: int) -> None:
    config = ModelConfig(embedding_size=8, encoder=SIZES, decoder={**SIZES, "cross_layers": cross_layers})
    model = TranslationModel(config, source_size=9, target_size=9, needs_posterior=False).eval()
    batch = make_batch([[5, 6, 7], [5, 6]], [[4, 3], [8, 3]])
    with record_heads(model) as found:
        model.problem(batch)
    assert sorted(found) == [f"layer {n // 2 + 1}, head {n % 2 + 1}" for n in range(heads)]
    for weights in found.values():
        assert weights.shape == (2, 2, 3)
        assert (weights[1, :, 2] == 0).all()
    found.clear()
    model.problem(batch)
    assert not found  # recording has ended


def test_one_step_later_is_the_next_row() -> None:
    table = torch.arange(6.0).view(3, 2)
    assert one_step_later(table).tolist() == [[2, 3], [4, 5], [4, 5]]
