"""How close soft training comes to the speed of the machine's own matrix products."""

from typing import Any

import torch

from benchmarks.translation.flops import soft_training
from benchmarks.translation.setting import Setting, Stopwatch, summary, take_turns
from latentalign.alignment.registry import build_objective
from latentalign.reports.grid.step_cost import BareLoop
from latentalign.translation.config import ModelConfig
from latentalign.translation.network.model import TranslationModel

PRODUCT = 2048
# d = 512 as it was tried out first; and everything of that size
SIZES: dict[str, dict[str, int]] = {
    "d=512": {"embedding_size": 256, "memory_size": 512, "decoder_size": 512, "attention_size": 256},
    "d=512, word vectors and attention, too": {
        "embedding_size": 512,
        "memory_size": 512,
        "decoder_size": 512,
        "attention_size": 512,
    },
}


def run(setting: Setting) -> dict[str, Any]:
    """Operations of the model a second over operations of a large matrix product a second."""
    batches = setting.batches(setting.options.batches)
    left, right = torch.randn(PRODUCT, PRODUCT), torch.randn(PRODUCT, PRODUCT)

    def product() -> Stopwatch:
        watch = Stopwatch()
        torch.mm(left, right)
        for _ in range(5):
            watch.add(lambda: _product(left, right))
        return watch

    contenders: dict[str, Any] = {"matrix product": product}
    sizes = {**SIZES, "recipe": setting.run.config.model.model_dump()}
    for name, values in sizes.items():
        contenders[name] = _trainer(ModelConfig(**values), setting, batches)
    watches = take_turns(contenders, setting.options.rounds)
    return {
        "product": PRODUCT,
        "rates": {
            name: {**summary(found, watches["matrix product"]), "sizes": sizes.get(name)}
            for name, found in watches.items()
        },
    }


def _product(left: torch.Tensor, right: torch.Tensor) -> float:
    torch.mm(left, right)
    return 2.0 * PRODUCT**3 / 1e9


def _trainer(config: ModelConfig, setting: Setting, batches: list[Any]) -> Any:
    torch.manual_seed(0)
    assets = setting.run.assets
    model = TranslationModel(
        config, source_size=len(assets.source), target_size=len(assets.target), needs_posterior=False
    )
    loop = BareLoop(model, build_objective("soft"), learning_rate=0.0, clip=5.0)
    work = [soft_training(config, lengths(batch), vocabulary=len(assets.target)) / 1e9 for batch in batches]

    def call() -> Stopwatch:
        loop.step(batches[0])
        watch = Stopwatch()
        for batch, operations in zip(batches, work, strict=True):
            watch.add(lambda batch=batch, operations=operations: (loop.step(batch), operations)[1])
        return watch

    return call


def lengths(batch: Any) -> list[tuple[int, int]]:
    """Source and target lengths of the pairs of a batch."""
    return list(zip(batch.source_mask.sum(1).tolist(), batch.target_mask.sum(1).tolist(), strict=True))
