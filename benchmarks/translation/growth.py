"""Time a token and memory of training steps as sentences and the vocabulary grow."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import measure
from benchmarks.translation.setting import Setting, note
from latentalign.alignment.latents.categorical import Categorical, Latent
from latentalign.alignment.registry import build_objective
from latentalign.reports.grid.step_cost import BareLoop
from latentalign.translation.config import ModelConfig
from latentalign.translation.data.dataset import PairBatch
from latentalign.translation.network.encoder_decoder import Memory
from latentalign.translation.network.model import TranslationModel

LENGTHS = (10, 25, 50, 100, 200)
VOCABULARIES = (4_000, 16_000, 32_000)
TOKENS = 800  # target tokens of a batch, whatever its length
SHARPNESS = 2.0  # nats a position of distance: a prior entropy of 0.8 as after training
EXACT = ("marginal, pruned", "marginal, dense", "variational, pruned")


class AsIfTrained(TranslationModel):
    """A model whose alignments and words look trained, at the usual cost: word t comes from position t.

    Random weights would make every position as good as any other, which nobody trains with for long.
    """

    hint: Tensor | None = None  # [B,S] the word of every position

    def problem(self, batch: PairBatch, *, with_posterior: bool = False) -> Any:
        self.hint = batch.target
        return super().problem(batch, with_posterior=with_posterior)

    def encode(self, source: Tensor, source_mask: Tensor) -> Memory:
        memory = super().encode(source, source_mask)
        assert self.hint is not None
        with torch.no_grad():  # tanh of this is nearly the sign of the word's own row of W: f is about 0.7
            towards = 2 * self.output.weight[self.hint].sign()  # [B,S,H]
        return dataclasses.replace(memory, values=memory.values + towards)

    def _read_targets(self, memory: Memory, words: Tensor) -> tuple[Tensor, Tensor]:
        outputs, scores = super()._read_targets(memory, words)
        return outputs, scores + diagonal(*scores.shape[1:])

    def posterior(self, batch: PairBatch, memory: Memory, prior_scores: Tensor) -> Latent:
        found: Any = super().posterior(batch, memory, prior_scores)
        return Categorical.from_scores(found.log_probs + diagonal(*found.shape[1:]), batch.source_mask)


def diagonal(steps: int, positions: int) -> Tensor:
    """Scores [T,S] that fall with the distance from position t."""
    return -SHARPNESS * (torch.arange(steps)[:, None] - torch.arange(positions)).abs().float()


def make_step(objective: Any, length: int, vocabulary: int, tokens: int, size: int) -> Callable[[], None]:
    """A call of one training step with S = T = length."""
    torch.manual_seed(0)
    chosen = build_objective(objective)
    config = ModelConfig(
        embedding_size=size // 2, memory_size=size, decoder_size=size, attention_size=size // 2
    )
    model = AsIfTrained(
        config, source_size=vocabulary, target_size=vocabulary, needs_posterior=chosen.needs_posterior
    )
    loop = BareLoop(model, chosen, learning_rate=0.0, clip=5.0)
    loop.step(_batch(2, 2, vocabulary))  # the optimiser's memory is part of the model's, not of the step's
    batch = _batch(max(1, tokens // length), length, vocabulary)

    def run() -> None:
        loop.step(batch)

    return run


def _batch(sentences: int, length: int, vocabulary: int) -> PairBatch:
    shape = (sentences, length)
    mask = torch.ones(shape, dtype=torch.bool)
    return PairBatch(torch.randint(4, vocabulary, shape), mask, torch.randint(4, vocabulary, shape), mask)


def objectives(setting: Setting) -> dict[str, Any]:
    """What grows, pruned as the recipes prune."""
    return {
        "soft": "soft",
        "marginal, pruned": setting.objective("-marginal"),
        "marginal, dense": "marginal",
        "variational, pruned": setting.objective("-variational"),
        "variational, 1 sample": {"name": "variational", "estimator": {"name": "reinforce", "samples": 1}},
    }


def run(setting: Setting) -> dict[str, Any]:
    """A row for every objective, length and vocabulary, each in a process of its own."""
    options = setting.options
    lengths, vocabularies = (LENGTHS[:3], VOCABULARIES[:1]) if options.quick else (LENGTHS, VOCABULARIES)
    rows: list[dict[str, Any]] = []
    for vocabulary in vocabularies:
        for length in lengths:
            soft: dict[str, float] = {}
            for name, objective in objectives(setting).items():
                found = measure(
                    make_step,
                    rounds=1 if options.quick else min(3, options.rounds),
                    threads=setting.threads,
                    objective=objective,
                    length=length,
                    vocabulary=vocabulary,
                    tokens=options.growth_tokens,
                    size=options.growth_size,
                )
                soft = soft or found
                rows.append(_row(name, length, vocabulary, options.growth_tokens, found, soft))
                row = rows[-1]
                note(
                    f"V={vocabulary} S=T={length} {name}: {1e3 * row['seconds_per_token']:.2f} ms a token, "
                    f"{row['peak_mib']:.0f} MiB, {row['peak_over_soft']:.2f} of soft's"
                )
    exact = [row for row in rows if row["objective"] in EXACT]
    return {
        "rows": rows,
        "largest_peak_over_soft": max(row["peak_over_soft"] for row in exact),
        "largest_extra_over_soft": max(row["extra_over_soft"] for row in exact),
    }


def _row(
    name: str, length: int, vocabulary: int, tokens: int, found: dict[str, float], soft: dict[str, float]
) -> dict[str, Any]:
    count = max(1, tokens // length) * length
    return {
        "objective": name,
        "length": length,
        "vocabulary": vocabulary,
        "seconds_per_token": found["seconds"] / count,
        "time_over_soft": found["seconds"] / soft["seconds"],
        "peak_mib": found["peak_mib"],
        "peak_over_soft": found["peak_mib"] / soft["peak_mib"],
        "extra_mib": found["extra_mib"],
        "extra_over_soft": found["extra_mib"] / max(soft["extra_mib"], 1.0),
    }
