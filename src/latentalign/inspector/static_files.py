"""The page's own files, read once at the start: no request ever names a file on the disk."""

import hashlib
from dataclasses import dataclass
from importlib import resources

from fastapi import APIRouter, Request, Response

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
PAGES = {"/": "index.html", "/docs": "docs.html"}


@dataclass(frozen=True)
class File:
    """A file of the page as it is sent."""

    content: bytes
    kind: str
    tag: str


def read_files() -> dict[str, File]:
    """Path -> file, for everything in the package's `static` folder."""
    found = {}
    for entry in sorted(resources.files("latentalign.inspector").joinpath("static").iterdir(), key=str):
        suffix = entry.name.rpartition(".")[2]
        if suffix in TYPES:
            content = entry.read_bytes()
            found[entry.name] = File(content, TYPES[suffix], f'"{hashlib.sha256(content).hexdigest()[:16]}"')
    files = {f"/static/{name}": file for name, file in found.items() if not name.endswith(".html")}
    return files | {path: found[name] for path, name in PAGES.items()}


def page_routes(files: dict[str, File]) -> APIRouter:
    """A route for every file; there is no route for anything else."""
    router = APIRouter(include_in_schema=False)
    for path, file in files.items():
        router.add_api_route(path, _sender(file), methods=["GET", "HEAD"], response_class=Response)
    return router


def _sender(file: File):  # type: ignore[no-untyped-def]
    headers = {"ETag": file.tag, "Cache-Control": "no-cache"}

    async def send(request: Request) -> Response:
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, media_type=file.kind, headers=headers)

    return send
