# mypy: disable-error-code="type-abstract"
"""Questions to VQA and memory runs, by the tasks' own `answer`."""

from typing import Any

from latentalign.errors import UserError
from latentalign.inspector.limits import UNPROCESSABLE, Refused
from latentalign.inspector.runs import ServedRun
from latentalign.inspector.schemas import AnswerRequest, AnswerResponse, Evidence
from latentalign.task import CanAnswerFromImages


def request_of(served: ServedRun, request: AnswerRequest) -> dict[str, Any]:
    """What the task is asked. A client sends texts and a number; the files are the server's own."""
    asked: dict[str, Any] = {"question": request.question}
    if request.answer:
        asked["answer"] = request.answer
    if not served.can(CanAnswerFromImages):
        if request.image is not None:
            raise Refused(UNPROCESSABLE, f"image: means nothing to a {served.task} run; it takes a story")
        asked["story"] = [line for text in request.story or [] for line in text.splitlines()]
        return asked
    if request.story is not None:
        raise Refused(
            UNPROCESSABLE, f"story: means nothing to a {served.task} run; it takes the number of an image"
        )
    images = served.images
    if images is None:
        raise Refused(
            UNPROCESSABLE,
            f"run: the region features of {served.name} are not on this machine; see serve --features",
        )
    if request.image is None or request.image not in images.numbers:
        given = "none" if request.image is None else request.image
        raise Refused(
            UNPROCESSABLE,
            f"image: expected one of {len(images.numbers)} numbers, received {given}; see GET /api/runs",
        )
    return {**asked, "features": images.features, "image": request.image}


def answer(
    served: ServedRun, asked: dict[str, Any], inference: str, *, top: int, seed: int
) -> AnswerResponse:
    """As `latentalign answer`."""
    about = {name: value for name, value in asked.items() if name != "question"}
    try:
        found = served.run.answer(asked["question"], inference=inference, top=top, seed=seed, **about)
    except UserError as error:
        # the tasks speak of the command line's options
        raise Refused(UNPROCESSABLE, str(error).replace("--", "")) from None
    size = found.get("size")
    return AnswerResponse(
        run=served.name,
        inference=inference,
        answers=found["answers"],
        evidence=[
            Evidence(**{name: entry.get(name) for name in ("text", "prior", "posterior", "hops", "box")})
            for entry in found["evidence"]
        ],
        unknown_words=found.get("unknown_words", []),
        posterior_by=found.get("posterior_by"),
        size=None if size is None else tuple(size),
        picture=served.images is not None and asked.get("image") in served.images.pictures,
    )
