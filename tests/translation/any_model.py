"""What holds of every translation model, whatever is latent in it: padding and batching change nothing."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from latentalign.translation.config import ModelConfig
from latentalign.translation.data.dataset import PairBatch, make_batch
from latentalign.translation.data.tokenizer import END, PAD
from latentalign.translation.network.model import TranslationModel

SOURCES = [[5, 6, 7, 8, END], [9, END], [4, 10, 11, END]]
TARGETS = [[6, 5, END], [7, 8, 9, 10, 4, END], [11, END]]
SMALL = {"name": "transformer", "layers": 2, "heads": 2, "width": 8, "feed_forward": 12}
TRANSFORMER = {"encoder": SMALL, "decoder": SMALL, "inference_network": {"encoder": SMALL}}

Losses = Callable[[TranslationModel, PairBatch], Tensor]  # some losses of every output, [N,B,T]


def tiny_model(**changes: object) -> TranslationModel:
    torch.manual_seed(3)
    settings: dict[str, object] = {
        "embedding_size": 6,
        "memory_size": 8,
        "decoder_size": 8,
        "attention_size": 5,
        "dropout": 0.0,
        "uniform_init": 0.6,
        "inference_network": {"memory_size": 6},
    }
    config = ModelConfig.model_validate({**settings, **changes})
    return TranslationModel(config, source_size=12, target_size=12, needs_posterior=True).double()


def check_batching(model: TranslationModel, losses: Losses) -> None:
    """A batch gives what its sentences give alone."""
    together = losses(model, make_batch(SOURCES, TARGETS))
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        alone = losses(model, make_batch([source], [target]))
        torch.testing.assert_close(together[:, row, : len(target)], alone[:, 0])


def check_padding(model: TranslationModel, losses: Losses) -> list[str]:
    """Padding changes neither value nor gradient; the weights that have a gradient."""
    batch = make_batch(SOURCES, TARGETS)
    wider = PairBatch(
        pad(batch.source, (0, 3), value=PAD),
        pad(batch.source_mask, (0, 3), value=False),
        pad(batch.target, (0, 2), value=PAD),
        pad(batch.target_mask, (0, 2), value=False),
    )
    found = []
    for example in (batch, wider):
        model.zero_grad()
        total = (losses(model, example) * example.target_mask).sum()
        total.backward()
        gradients = {
            name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None
        }
        found.append({"total": total.detach(), **gradients})
    torch.testing.assert_close(found[0], found[1])
    return list(gradients)
