"""A model to measure."""

import pytest
import torch

from latentalign.translation.config import ModelConfig
from latentalign.translation.network.model import TranslationModel


@pytest.fixture
def random_translator() -> TranslationModel:
    """A small translator with an inference network, whose weights are random and large."""
    torch.manual_seed(1)
    config = ModelConfig(
        embedding_size=8,
        memory_size=8,
        decoder_size=8,
        attention_size=8,
        inference_network={"memory_size": 8},
    )
    model = TranslationModel(config, source_size=60, target_size=60, needs_posterior=True).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    return model
