"""A tiny untrained model and its tokenizers, for tests that need the parts and not their quality."""

import torch

from latentalign.translation.config import ModelConfig, TokenizerConfig
from latentalign.translation.data.assets import TranslationAssets
from latentalign.translation.data.learn_tokenizers import count_words, learn_tokenizers
from latentalign.translation.network.model import TranslationModel

SENTENCES = [
    "ein kleiner Hund läuft über die Wiese .",
    "Donaudampfschifffahrt ist schön",
    "das Haus am See",
    "ja",
    "zwei Männer spielen im großen alten Park Fußball und lachen laut dabei .",
]
TARGETS = [
    "a small dog runs across the meadow .",
    "Danube steam navigation is nice",
    "the house at the lake",
    "yes",
    "two men play football in the large old park and laugh loudly .",
]


_SMALL = {"name": "transformer", "layers": 2, "heads": 2, "width": 12, "feed_forward": 16}
# what makes memory and queries: settings of a model, to parametrise tests over
NETWORKS = {
    "lstm": {},
    "transformer": {"encoder": _SMALL, "decoder": _SMALL, "inference_network": {"encoder": _SMALL}},
    "cross": {"encoder": _SMALL, "decoder": {**_SMALL, "cross_layers": 1}},
}


def tiny_assets(*, kind="bpe", source_end=True):
    config = TokenizerConfig(kind=kind, size=60, joint=True, byte_fallback=False)
    tokenizers = learn_tokenizers(*count_words(zip(SENTENCES, TARGETS, strict=True)), config=config)
    return TranslationAssets(*tokenizers, source_end=source_end)


def tiny_model(assets, *, posterior=True, scale=4.0, seed=1, **settings):
    """Weights scaled up, so that distributions are far from uniform and hypotheses far apart."""
    torch.manual_seed(seed)
    sizes = {
        "embedding_size": 12,
        "memory_size": 16,
        "decoder_size": 14,
        "attention_size": 10,
        "hidden_size": 12,
    }
    inference = {"memory_size": 8}
    config = ModelConfig(**{**sizes, "inference_network": inference, **settings})
    model = TranslationModel(
        config, source_size=len(assets.source), target_size=len(assets.target), needs_posterior=posterior
    )
    with torch.no_grad():
        norms = [part for part in model.modules() if isinstance(part, torch.nn.LayerNorm)]
        kept = {id(parameter) for part in norms for parameter in part.parameters()}
        for parameter in model.parameters():
            parameter.mul_(1.0 if id(parameter) in kept else scale)
    return model.double().eval()
