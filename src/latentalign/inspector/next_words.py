"""What the translator would say next, under several ways to predict."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from latentalign.alignment.latents.latent import Latent
from latentalign.inspector.schemas import Distribution, NextResponse, NextWord
from latentalign.training.trained_run import Run
from latentalign.translation.align import word_probs
from latentalign.translation.beam.decoding import PredictiveDecoder
from latentalign.translation.beam.search import BeamStatus
from latentalign.translation.data.tokenizer import END, START, Tokenizer
from latentalign.translation.network.model import Memory


@torch.no_grad()
def next_words(
    run: Run,
    name: str,
    source: str,
    prefix: str,
    predictors: Sequence[tuple[str, Any]],
    *,
    top: int,
    seed: int,
) -> NextResponse:
    """The step after `prefix`: its prior, and the likeliest pieces by every predictor.

    The listed pieces are the union of what is likeliest by each, so that every way has a number for each.
    """
    model, assets = run.model, run.assets
    pieces, words = assets.encode_source(source)
    source_pieces = torch.tensor([pieces], device=run.device)
    memory = model.encode(source_pieces, torch.ones_like(source_pieces, dtype=torch.bool))
    read = [START, *assets.target.encode(prefix)]
    source_words = assets.source.words(source)
    shape = (1, len(source_words))
    found, priors = [], []
    for _, predictor in predictors:
        generator = torch.Generator(run.device).manual_seed(seed)
        decoder = PredictiveDecoder(model, predictor, generator, tolerance=0.0)
        probs, prior = _after(decoder, memory, read)
        found.append(probs.cpu())
        priors.append(prior)
    by_word = word_probs(priors[0].alignment_probs()[0].cpu(), [0], words, shape=shape)[0]
    listed = _likeliest(found, top)
    return NextResponse(
        run=name,
        source_words=source_words,
        prior=by_word.tolist(),
        positions=len(pieces),
        words=[_word(assets.target, number) for number in listed],
        distributions=[
            _distribution(text, probs, found[0], listed)
            for (text, _), probs in zip(predictors, found, strict=True)
        ],
    )


def _after(decoder: PredictiveDecoder, memory: Memory, read: Sequence[int]) -> tuple[Tensor, Latent]:
    """p(next piece) as the search computes it [V], and the prior of the step, after reading these pieces."""
    pieces = torch.tensor([read], device=memory.values.device)
    nothing = torch.zeros(1, 1, device=pieces.device)
    beam = BeamStatus(nothing, places=1, only_end=nothing[0].bool())
    state = decoder.start(memory)
    for place in range(len(read) - 1):
        _, state = decoder.step(memory, state, pieces[:, place : place + 1], beam)
    last = pieces[:, -1:]
    prior, _, _ = decoder.read(memory, state, last)
    scores, _ = decoder.step(memory, state, last, beam)
    values = scores.values[0, 0]
    return scores.log_probs(torch.zeros_like(values, dtype=torch.long), values).double().exp(), prior


def _likeliest(found: Sequence[Tensor], top: int) -> list[int]:
    chosen: dict[int, None] = {}
    for probs in found:
        best = probs.topk(min(top, len(probs))).indices.tolist()
        chosen.update(dict.fromkeys(best))
    return sorted(chosen, key=lambda number: -float(found[0][number]))


def _word(tokenizer: Tokenizer, number: int) -> NextWord:
    """A piece as it reads; the end of the sentence has no text of its own."""
    if number == END:
        return NextWord(text="", starts_word=True, is_end=True)
    before = tokenizer.decode_words([number])[0]
    # a piece that starts no word continues the word of the piece before it
    joined = len(tokenizer.decode_words([number, number])[0]) < 2
    return NextWord(
        text=before[0] if before else tokenizer.pieces[number], starts_word=not joined, is_end=False
    )


def _distribution(name: str, probs: Tensor, reference: Tensor, listed: Sequence[int]) -> Distribution:
    entropy = -torch.special.xlogy(probs, probs).sum()
    return Distribution(
        inference=name,
        probabilities=probs[list(listed)].tolist(),
        entropy=max(0.0, float(entropy)),
        distance=min(1.0, float(0.5 * (probs - reference).abs().sum())),
    )
