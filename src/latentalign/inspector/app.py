"""The FastAPI application: the paths of the API, their errors, and the page."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from latentalign import __version__
from latentalign.errors import UserError
from latentalign.inspector.limits import TOO_LARGE, UNPROCESSABLE, Limits, Refused
from latentalign.inspector.middleware import RequestMiddleware, error_content
from latentalign.inspector.runs import ServedRuns
from latentalign.inspector.schemas import (
    AlignRequest,
    AlignResponse,
    AnswerRequest,
    AnswerResponse,
    ErrorResponse,
    Health,
    NextRequest,
    NextResponse,
    RunsResponse,
    ScoreRequest,
    ScoreResponse,
    TranslateRequest,
    TranslateResponse,
)
from latentalign.inspector.service import InspectorService
from latentalign.inspector.static_files import page_routes, read_files

_WHY = {
    400: "The request is not HTTP as this server speaks it.",
    404: "There is no such picture.",
    408: "The request did not arrive within the time limit.",
    413: "More than the server takes; the limit is named.",
    415: "The body does not say that it is JSON.",
    422: "Not what the description says; the message says what was expected.",
    503: "Busy, or not done within the time limit; try again after `Retry-After` seconds.",
}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": why} for status, why in _WHY.items()
}
USUAL = {status: described for status, described in ERRORS.items() if status != 404}
IMAGE: dict[str, Any] = {"content": {"image/png": {}, "image/jpeg": {}}, "description": "The picture."}
DESCRIPTION = """Translations and word alignments of trained runs, the same as the command line gives.
Batches of sentences are welcome; requests that arrive together are computed together."""


def _service(request: Request) -> InspectorService:
    service: InspectorService = request.app.state.service
    return service


Service = Annotated[InspectorService, Depends(_service)]
api = APIRouter(responses=USUAL)


@api.post("/api/translate", summary="Translate sentences")
async def translate(request: TranslateRequest, service: Service) -> TranslateResponse:
    """The best translations of every sentence, with links of their words, as `latentalign translate`."""
    return await service.translate(request)


@api.post("/api/align", summary="Align sentence pairs")
async def align(request: AlignRequest, service: Service) -> AlignResponse:
    """Links between the words of every pair, with probabilities, as `latentalign align`."""
    return await service.align(request)


@api.post("/api/score", summary="Score sentence pairs")
async def score(request: ScoreRequest, service: Service) -> ScoreResponse:
    """How likely every translation is given its source."""
    return await service.score(request)


@api.post("/api/next", summary="The next word")
async def next_word(request: NextRequest, service: Service) -> NextResponse:
    """What may follow the beginning of a translation, under several ways to predict."""
    return await service.next(request)


@api.post("/api/answer", summary="Answer a question")
async def answer(request: AnswerRequest, service: Service) -> AnswerResponse:
    """What a VQA or memory run answers, and where it looked, as `latentalign answer`."""
    return await service.answer(request)


@api.get("/api/image", summary="An image", response_class=Response, responses={404: ERRORS[404], 200: IMAGE})
async def image(
    service: Service, image: Annotated[int, Query(ge=0, le=2**53)], run: str | None = None
) -> Response:
    """The picture of an image that a VQA run can be asked about."""
    content, kind = service.picture(run, image)
    return Response(content, media_type=kind, headers={"Cache-Control": "private, max-age=3600"})


@api.get("/api/runs", summary="The runs and the limits")
async def runs(service: Service) -> RunsResponse:
    """What is served here, what each run can do, and how much one may ask for."""
    return service.describe()


@api.get("/healthz", summary="Is it up?")
async def healthz(service: Service) -> Health:
    """Answers at once, also while the model computes."""
    return service.health()


def build_app(
    runs: ServedRuns,
    *,
    limits: Limits | None = None,
    hosts: Sequence[str] = ("*",),
    log_texts: bool = False,
) -> FastAPI:
    """The application. `hosts` are the names it answers to (any unless given)."""
    limits = limits or Limits()
    service = InspectorService(runs, limits, log_texts=log_texts)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="latentalign inspector",
        version=__version__,
        description=DESCRIPTION,
        lifespan=life,
        docs_url=None,  # the usual page of documentation comes from elsewhere; ours is one of our own files
        redoc_url=None,
    )
    app.state.service = service
    files = read_files()
    app.include_router(api)
    app.include_router(page_routes(files))
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(UserError, _answer_mistake)
    paths = (
        frozenset(files) | {route.path for route in api.routes if hasattr(route, "path")} | {"/openapi.json"}
    )
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
    app.add_middleware(RequestMiddleware, limits=limits, paths=paths)  # added last, so it comes first
    app.openapi = lambda: _describe(app, limits)  # type: ignore[method-assign]
    return app


def _describe(app: FastAPI, limits: Limits) -> dict[str, Any]:
    if app.openapi_schema is None:
        found = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        limits.describe_in(found["components"]["schemas"])
        app.openapi_schema = found
    return app.openapi_schema


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    refused = error if isinstance(error, Refused) else Refused(error.status_code, str(error.detail))
    return JSONResponse(error_content(refused), status_code=error.status_code, headers=error.headers)


async def _answer_mistake(request: Request, error: Exception) -> Response:
    refused = Refused(UNPROCESSABLE, str(error))
    return JSONResponse(error_content(refused), status_code=refused.status_code)


async def _answer_invalid(request: Request, error: Exception) -> Response:
    """Say where and what, and never give the input back."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        why, where = first["ctx"]["error"], first["loc"][-1]
        refused = Refused(UNPROCESSABLE, f"body: expected JSON; {why} at character {where}")
        return JSONResponse(error_content(refused), status_code=UNPROCESSABLE)
    place = ".".join(str(part) for part in first["loc"] if part != "body") or "body"
    status = TOO_LARGE if first["type"] in ("too_long", "string_too_long") else UNPROCESSABLE
    message = str(first["msg"]).removeprefix("Value error, ")
    refused = Refused(status, f"{place[:80]}: {message[:1].lower()}{message[1:]}")
    return JSONResponse(error_content(refused), status_code=status)
