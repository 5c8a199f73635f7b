"""Decoding under each inference over soft's time; and how time grows with the beam and with the batch."""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.translation.setting import Setting, Stopwatch, note, summary, take_turns
from latentalign.training.loop.evaluation import find_predictor
from latentalign.translation.beam.search import SearchOptions
from latentalign.translation.translate import Translator

INFERENCES = ("soft", "kmax:5", "exact")
BEAMS = (1, 5, 10, 20, 50)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
# soft attention, and what the exact marginal makes of it: sharper alignments need fewer positions
STATES = ("soft", "wake", "finished")


def run(setting: Setting) -> dict[str, Any]:
    """All figures of this section."""
    few = setting.test_sentences[: setting.options.few_sentences]
    beams, batches = (BEAMS[::2], BATCHES[::3]) if setting.options.quick else (BEAMS, BATCHES)
    note(f"decoding {len(few)} sentences by beam and by batch")
    by_beam = [_point(setting, few, beam=beam) for beam in beams]
    by_batch = [_point(setting, few, batch=batch) for batch in batches]
    wide = [point for point in by_beam if point["beam"] > 1]
    return {
        "inference": {
            state: _inferences(setting, state)
            for state in STATES
            if state != "finished" or setting.options.finished is not None
        },
        "by_beam": by_beam,
        "by_batch": by_batch,
        # seconds ~ beam^e: 1 is linear, 2 would be a quadratic surprise
        "beam_exponent": {
            name: exponent([point["beam"] for point in wide], [point[name] for point in wide])
            for name in INFERENCES
        },
        # a larger batch must not cost more for each sentence
        "batch_exponent": {
            name: exponent([point["batch"] for point in by_batch], [point[name] for point in by_batch])
            for name in INFERENCES
        },
    }


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """e of seconds ~ size^e by least squares on logarithms."""
    across, up = [math.log(size) for size in sizes], [math.log(second) for second in seconds]
    middle, level = statistics.mean(across), statistics.mean(up)
    spread = sum((x - middle) ** 2 for x in across)
    if spread == 0:
        return math.nan
    return sum((x - middle) * (y - level) for x, y in zip(across, up, strict=True)) / spread


def _inferences(setting: Setting, state: str) -> dict[str, Any]:
    """Sentences a second of each inference, the test sentences in parts; turns go from part to part."""
    texts = setting.test_sentences
    parts = max(1, min(setting.options.rounds, len(texts) // 64))
    translators = {name: _translator(setting, state, name) for name in INFERENCES}
    found: dict[str, list[Stopwatch]] = {name: [] for name in INFERENCES}
    for start in range(parts):
        part = texts[start::parts]
        turn = take_turns({name: _timed(translators[name], part) for name in INFERENCES}, 1)
        for name, watch in turn.items():
            found[name] += watch
    return {
        name: {**(row := summary(watches, found["soft"])), "time_over_soft": 1 / row["ratio"]}
        for name, watches in found.items()
    }


def _translator(
    setting: Setting, state: str, inference: str, *, beam: int = 10, batch: int = 64
) -> Translator:
    finished = setting.finished if state == "finished" else None
    return Translator(
        setting.model(state) if finished is None else finished.model,
        setting.run.assets if finished is None else finished.assets,
        options=SearchOptions(beam=beam),
        predictor=find_predictor(inference),
        batch_size=batch,
    )


def _timed(translator: Translator, texts: list[str]) -> Callable[[], Stopwatch]:
    def call() -> Stopwatch:
        watch = Stopwatch()
        watch.add(lambda: float(len(translator.translate(texts))))
        return watch

    return call


def _point(setting: Setting, texts: list[str], *, beam: int = 10, batch: int = 64) -> dict[str, float]:
    """Seconds a sentence at one beam and batch, for each inference."""
    rounds = 1 if setting.options.quick else 3
    found = take_turns(
        {
            name: _timed(_translator(setting, "wake", name, beam=beam, batch=batch), texts)
            for name in INFERENCES
        },
        rounds,
    )
    seconds = {
        name: statistics.median(1 / watch.rate for watch in watches) for name, watches in found.items()
    }
    return {"beam": beam, "batch": batch, **seconds}
