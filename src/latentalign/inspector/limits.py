"""What one request may ask for. Every refusal names the limit and its value, and so does the OpenAPI description."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from fastapi import HTTPException

from latentalign.alignment.prediction import KMax, Predictor, Sampled
from latentalign.errors import UserError
from latentalign.training.loop.evaluation import find_predictor

TOO_LARGE, UNSUPPORTED, UNPROCESSABLE, UNAVAILABLE = 413, 415, 422, 503
INFERENCE_PATTERN = r"^(exact|soft|kmax(:[1-9][0-9]{0,3})?|sample(:[1-9][0-9]{0,3})?)$"


class Refused(HTTPException):
    """A request that is refused: why, and (where it exceeds one) the limit."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        limit: tuple[str, float] | None = None,
        retry_after: int | None = None,
        hang_up: bool = False,
    ) -> None:
        headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
        if hang_up:
            headers["Connection"] = "close"  # the rest of the request is not worth receiving
        super().__init__(status, detail=message, headers=headers)
        self.limit = limit


@dataclass(frozen=True)
class Limits:
    """The limits of a server; the page and the API description show them."""

    characters: int = 2000  # of a sentence
    total_characters: int = 20_000  # of all sentences of a request
    sentences: int = 64  # of a request; pairs count once
    pieces: int = 400  # of a sentence, as the run's tokenizer cuts it
    cells: int = 40_000  # of the matrices of a request, in pairs of words
    beam: int = 20
    k: int = 1000  # positions of kmax
    samples: int = 200  # of sampled inference
    top: int = 50  # words or answers listed
    body_bytes: int = 1_000_000
    seconds: float = 30.0  # from the arrival of a request to its answer
    queue: int = 512  # sentences that wait
    batch: int = 64  # sentences computed together
    connections: int = 256  # requests under way

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 < value < math.inf:
                raise UserError(f"{field.name}: expected a limit above 0, and finite; received {value}")

    # --- checks, in the order in which a request meets them ---

    def check_texts(self, name: str, texts: Sequence[str]) -> None:
        """Refuse too many or too long texts, and what is not text at all."""
        if len(texts) > self.sentences:
            raise self._too_large("sentences", f"{name}: {len(texts)} sentences", self.sentences)
        for number, text in enumerate(texts, start=1):
            if len(text) > self.characters:
                place = f"{name}: sentence {number} has {len(text)} characters"
                raise self._too_large("characters", place, self.characters)
        total = sum(map(len, texts))
        if total > self.total_characters:
            place = f"{name}: {total} characters together"
            raise self._too_large("total_characters", place, self.total_characters)

    def check_pieces(self, name: str, counts: Iterable[int]) -> None:
        """Refuse sentences that the tokenizer cuts into too many pieces."""
        for number, count in enumerate(counts, start=1):
            if count > self.pieces:
                raise self._too_large("pieces", f"{name}: sentence {number} has {count} pieces", self.pieces)

    def check_cells(self, sizes: Iterable[tuple[int, int]]) -> None:
        """Refuse matrices too large to send."""
        total = sum(rows * columns for rows, columns in sizes)
        if total > self.cells:
            raise self._too_large("cells", f"matrices: {total} cells together", self.cells)

    def check_number(self, name: str, value: int, limit: str) -> None:
        """Refuse a number above its limit."""
        most = getattr(self, limit)
        if value > most:
            raise Refused(
                UNPROCESSABLE,
                f"{name}: expected at most {most}, the limit of this server; received {value}",
                limit=(limit, most),
            )

    def check_inference(self, text: str) -> Predictor:
        """The predictor of that name, within the limits on K and on samples."""
        predictor = find_predictor(text)
        if isinstance(predictor, KMax):
            self.check_number("inference: K", predictor.k, "k")
        if isinstance(predictor, Sampled):
            self.check_number("inference: samples", predictor.n, "samples")
        return predictor

    def _too_large(self, name: str, found: str, most: int) -> Refused:
        return Refused(TOO_LARGE, f"{found}; the limit of this server is {most} ({name})", limit=(name, most))

    def describe_in(self, schemas: dict[str, Any]) -> None:
        """Write the limits into the component schemas of an OpenAPI description."""
        text = {"maxLength": self.characters}
        many = {"maxItems": self.sentences}
        bounds: dict[str, dict[str, Any]] = {
            "sentences": {**many, "items": text},
            "story": {**many, "items": text},
            "pairs": many,
            "source": text,
            "target": text,
            "prefix": text,
            "question": text,
            "answer": text,
            "beam": {"maximum": self.beam},
            "n_best": {"maximum": self.beam},
            "top": {"maximum": self.top},
        }
        for name, schema in schemas.items():
            if not name.endswith(("Request", "Pair")):
                continue
            for field, value in schema.get("properties", {}).items():
                _narrow(value, bounds.get(field, {}))


def _narrow(schema: dict[str, Any], bounds: dict[str, Any]) -> None:
    """Add bounds to a schema, or to those of its alternatives that they can apply to."""
    if not bounds:
        return
    kind = "array" if "maxItems" in bounds else "string" if "maxLength" in bounds else "integer"
    for part in (schema, *schema.get("anyOf", [])):
        if part.get("type") == kind:
            items = bounds.get("items")
            part.update({name: value for name, value in bounds.items() if name != "items"})
            if items and "items" in part:
                part["items"] = {**part["items"], **items}
