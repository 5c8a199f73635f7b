"""Operations counted on paper against those that torch counts while it computes."""

from collections.abc import Iterator

import pytest
import torch
from benchmarks.translation.flops import lstm, soft_forward, soft_training
from torch.utils.flop_counter import FlopCounterMode

from latentalign.alignment import AlignmentProblem, Soft
from latentalign.translation.config import ModelConfig
from latentalign.translation.data.dataset import PairBatch
from latentalign.translation.network.model import TranslationModel

SIZES = {"embedding_size": 6, "memory_size": 8, "decoder_size": 10, "attention_size": 4, "hidden_size": 12}
VOCABULARY, SENTENCES, SOURCE, TARGET = 20, 3, 5, 4


@pytest.fixture
def _plain_lstm() -> Iterator[None]:
    """Without the fused LSTM, which the counter of torch cannot see into."""
    torch._C._set_mkldnn_enabled(False)  # torch.backends.mkldnn.flags also touches what it warns of
    yield
    torch._C._set_mkldnn_enabled(True)


def _in_place(_total: tuple, left: tuple, right: tuple, *, out_shape: tuple, **_: float) -> int:
    return 2 * left[0] * left[1] * right[1]


def count(config: ModelConfig) -> float:
    """What torch multiplies in a training step."""
    torch.manual_seed(0)
    model = TranslationModel(config, source_size=VOCABULARY, target_size=VOCABULARY, needs_posterior=False)
    source, target = (torch.randint(4, VOCABULARY, (SENTENCES, length)) for length in (SOURCE, TARGET))
    batch = PairBatch(
        source, torch.ones_like(source, dtype=torch.bool), target, torch.ones_like(target, dtype=torch.bool)
    )
    in_place = {torch.ops.aten.addmm_: _in_place}  # which torch's counter does not know
    with FlopCounterMode(display=False, custom_mapping=in_place) as counter:
        problem = model.problem(batch)
        Soft()(AlignmentProblem(problem.prior, problem.likelihood)).surrogate.sum().backward()
    return float(counter.get_total_flops())


@pytest.mark.usefixtures("_plain_lstm")
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"encoder_layers": 2, "decoder_layers": 2},
        {"score": "general"},
        {"initial_state": "zero"},
        {"input_feeding": True},
    ],
    ids=["plain", "two layers", "general score", "zero start", "input feeding"],
)
def test_the_count_is_that_of_torch(changes: dict) -> None:
    config = ModelConfig(**{**SIZES, **changes})
    expected = soft_training(config, [(SOURCE, TARGET)] * SENTENCES, vocabulary=VOCABULARY)
    # torch multiplies a little more or less at the edges: a start from zeros, an input without a gradient
    assert count(config) == pytest.approx(expected, rel=0.03)


def test_an_lstm_step_by_hand() -> None:
    assert lstm(3, 2) == 2 * 8 * 5  # four gates of two units, each reading three inputs and two states


def test_the_vocabulary_counts_once_for_each_target() -> None:
    config = ModelConfig(**SIZES)
    more = soft_forward(config, SOURCE, TARGET, VOCABULARY + 1) - soft_forward(
        config, SOURCE, TARGET, VOCABULARY
    )
    assert more == 2 * 12 * TARGET
