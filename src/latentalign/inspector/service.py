# mypy: disable-error-code="type-abstract"
"""Where requests are checked, queued, computed and answered."""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from latentalign import __version__
from latentalign.alignment.errors import ConfigError
from latentalign.alignment.prediction import Predictor
from latentalign.inspector import translation_results
from latentalign.inspector.answers import answer, request_of
from latentalign.inspector.batching import MicroBatcher, Overloaded, QueuedRequest, TimeUp
from latentalign.inspector.limits import UNAVAILABLE, UNPROCESSABLE, Limits, Refused
from latentalign.inspector.next_words import next_words
from latentalign.inspector.pair_results import LinksAsked
from latentalign.inspector.runs import ServedAligner, ServedRun, ServedRuns, Side
from latentalign.inspector.schemas import (
    AlignRequest,
    AlignResponse,
    AnswerRequest,
    AnswerResponse,
    By,
    Health,
    NextRequest,
    NextResponse,
    Pair,
    RunsResponse,
    ScoreRequest,
    ScoreResponse,
    TranslateRequest,
    TranslateResponse,
)
from latentalign.task import CanAnswer, CanAnswerFromImages, CanTranslate
from latentalign.translation.beam.search import SearchOptions

LOG = logging.getLogger("latentalign.inspector")


class InspectorService:
    """Everything the API does, one method for each path."""

    def __init__(self, runs: ServedRuns, limits: Limits, *, log_texts: bool = False) -> None:
        self.runs, self.limits, self.log_texts = runs, limits, log_texts
        self.batcher = MicroBatcher(batch=limits.batch, queue=limits.queue, longest=limits.seconds / 4)
        for served in runs:
            if served.module is not None:
                self.batcher.deadline.watch(served.module)

    def close(self) -> None:
        """Let the model's thread end."""
        self.batcher.close()

    def describe(self) -> RunsResponse:
        return RunsResponse(
            version=__version__, runs=[one.info for one in self.runs], limits=asdict(self.limits)
        )

    def health(self) -> Health:
        return Health(status="ok", computing=self.batcher.computing, waiting=self.batcher.waiting)

    async def translate(self, request: TranslateRequest) -> TranslateResponse:
        served = self.runs.find(request.run, CanTranslate)
        self.limits.check_texts("sentences", request.sentences)
        self.limits.check_number("beam", request.beam, "beam")
        if request.inference is not None:
            self.limits.check_inference(request.inference)
        self.limits.check_pieces(
            "sentences", (len(served.run.assets.source_pieces(text)) for text in request.sentences)
        )
        options = SearchOptions(
            beam=request.beam,
            n_best=request.n_best,
            length_penalty=request.length_penalty,
            eos_penalty=request.eos_penalty,
            max_length_factor=request.max_length_factor,
        )
        inference = request.inference or served.info.inference
        translator = served.run.translator(inference=inference, seed=request.seed, **asdict(options))
        results = await self._do(
            ("translate", served.name, options, inference, request.alignments),
            request.sentences,
            lambda sentences: translation_results.translate(
                translator, sentences, alignments=request.alignments
            ),
            alone=translator.predictor.is_random,
        )
        return TranslateResponse(
            run=served.name, inference=inference, links_by=_links_by(translator.links_by), results=results
        )

    async def align(self, request: AlignRequest) -> AlignResponse:
        served = self.runs.find_aligning(request.run)
        by = _links_by(served.choose_links(request.by))
        pairs = self._pairs(served, request.pairs)
        if request.matrices:
            self.limits.check_cells((len(right.split()), len(left.split())) for left, right in pairs)
        asked = LinksAsked(
            by=by,
            exact=by == "exact" or (request.matrices and not served.relaxed),
            scores=request.scores,
            matrices=request.matrices,
            threshold=request.threshold,
        )
        results = await self._do(
            ("align", served.name, asked),
            pairs,
            lambda items: served.align(items, asked),
            alone=served.relaxed and request.scores,
        )
        return AlignResponse(run=served.name, by=by, results=results)

    async def score(self, request: ScoreRequest) -> ScoreResponse:
        served = self.runs.find_aligning(request.run)
        asked: dict[str, Any] = {}
        is_random = served.relaxed
        if request.inference is not None:
            predictor = self._predictor(served, request.inference)
            is_random |= predictor.is_random
            asked = {"predictor": predictor, "seed": request.seed}
        results = await self._do(
            ("score", served.name, request.inference),
            self._pairs(served, request.pairs),
            partial(served.score, **asked),
            alone=is_random,
        )
        return ScoreResponse(run=served.name, inference=request.inference, results=results)

    async def next(self, request: NextRequest) -> NextResponse:
        served = self.runs.find(request.run, CanTranslate)
        self.limits.check_number("top", request.top, "top")
        predictors = [(text, self._predictor(served, text)) for text in request.inferences]
        pairs = self._pairs(served, [Pair(source=request.source, target=request.prefix)])
        if not request.source.split():
            raise Refused(UNPROCESSABLE, "source: expected at least one word, received an empty sentence")
        (result,) = await self._do(
            ("next",),
            pairs,
            lambda items: [
                next_words(
                    served.run,
                    served.name,
                    items[0][0],
                    items[0][1],
                    predictors,
                    top=request.top,
                    seed=request.seed,
                )
            ],
            alone=True,
        )
        return result

    async def answer(self, request: AnswerRequest) -> AnswerResponse:
        served = self.runs.find(request.run, CanAnswer)
        self.limits.check_number("top", request.top, "top")
        self.limits.check_texts("question", [request.question, request.answer or ""])
        self.limits.check_texts("story", request.story or [])
        inference = request.inference or served.info.inference
        self._predictor(served, inference)
        (result,) = await self._do(
            ("answer",),
            [request_of(served, request)],
            lambda items: [answer(served, items[0], inference, top=request.top, seed=request.seed)],
            alone=True,
        )
        return result

    def picture(self, run: str | None, image: int) -> tuple[bytes, str]:
        """The picture of an image and its type."""
        served = self.runs.find(run, CanAnswerFromImages)
        found = None if served.images is None else served.images.picture(image)
        if found is None:
            raise Refused(404, f"image: no picture of image {image} is served here")
        return found

    def _predictor(self, served: ServedRun | ServedAligner, inference: str) -> Predictor:
        """A way to predict that fits the limits and the run."""
        predictor = self.limits.check_inference(inference)
        if not served.info.inferences:
            raise Refused(UNPROCESSABLE, f"inference: {served.name} is an aligner and predicts nothing")
        if inference.partition(":")[0] not in served.info.inferences:
            raise Refused(
                UNPROCESSABLE,
                f"inference: {inference} needs a categorical alignment, that of {served.name} is relaxed; "
                f"try {served.info.inference}",
            )
        return predictor

    def _pairs(self, served: ServedRun | ServedAligner, pairs: Sequence[Pair]) -> list[tuple[str, str]]:
        found = [(pair.source, pair.target) for pair in pairs]
        sides: tuple[Side, Side] = ("source", "target")
        for number, side in enumerate(sides):
            texts = [pair[number] for pair in found]
            self.limits.check_texts(side, texts)
            self.limits.check_pieces(side, (served.count_pieces(side, text) for text in texts))
        return found

    async def _do(
        self,
        key: Hashable,
        items: Sequence[Any],
        compute: Callable[[list[Any]], list[Any]],
        *,
        alone: bool = False,
    ) -> list[Any]:
        """Queue the work and wait for it. What is drawn at random is computed alone: in a batch it would change."""
        if self.log_texts:
            # one line of JSON: a text cannot pretend to be a line of the log
            LOG.info("asked: %s", json.dumps(items, default=str))
        deadline = time.monotonic() + self.limits.seconds
        queued = QueuedRequest(object() if alone else key, items, compute, deadline)
        try:
            return await asyncio.wrap_future(self.batcher.submit(queued))
        except Overloaded as error:
            raise Refused(
                UNAVAILABLE,
                f"the server is busy: its queue of {self.limits.queue} sentences is full; "
                f"try again in {error.retry_after} s",
                limit=("queue", self.limits.queue),
                retry_after=error.retry_after,
            ) from None
        except TimeUp:
            raise time_is_up(self.limits) from None
        except ConfigError as error:  # a way to predict that does not fit the model
            raise Refused(UNPROCESSABLE, str(error)) from None


def time_is_up(limits: Limits) -> Refused:
    """The answer to a request that took too long."""
    return Refused(
        UNAVAILABLE,
        f"not done within {limits.seconds:g} s, the time limit of this server; "
        "send fewer or shorter sentences, or try again when it is less busy",
        limit=("seconds", limits.seconds),
        retry_after=max(1, round(limits.seconds)),
    )


def _links_by(name: str) -> By:
    assert name in ("posterior", "prior", "exact")
    return name  # type: ignore[return-value]
