"""The console's scripts and styles, at addresses that change with their content, compressed once."""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from service.auth.access import CONSOLE

TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
OWN_STYLE = "console.css"  # begins with the colours that reports have
FOREVER = "public, max-age=31536000, immutable"

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file with its content as it is and compressed."""

    name: str
    content: bytes
    compressed: bytes
    digest: str

    @property
    def address(self) -> str:
        return f"{CONSOLE}/static/{self.digest}/{self.name}"

    @property
    def media_type(self) -> str:
        return TYPES[self.name.rpartition(".")[2]]


@router.get("/console/static/{digest}/{name}")
async def static_file(digest: str, name: str, request: Request) -> Response:
    """A file, for ever; another content has another address."""
    found = static_files().get(name)
    if found is None or found.digest != digest:
        raise HTTPException(404)
    headers = {"Cache-Control": FOREVER, "Vary": "Accept-Encoding"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(found.content, headers=headers, media_type=found.media_type)
    headers["Content-Encoding"] = "gzip"
    return Response(found.compressed, headers=headers, media_type=found.media_type)


@cache
def static_files() -> dict[str, StaticFile]:
    """All files by name."""
    folder = files("service.console") / "static"
    palette = (files("service.pages") / "templates" / "palette.css").read_bytes()
    found = (
        (each.name, each.read_bytes())
        for each in folder.iterdir()
        if each.name.rpartition(".")[2] in TYPES
    )
    return {
        name: _static_file(name, palette + content)
        if name == OWN_STYLE
        else _static_file(name, content)
        for name, content in found
    }


def _static_file(name: str, content: bytes) -> StaticFile:
    digest = hashlib.sha256(content).hexdigest()[:12]
    return StaticFile(name, content, gzip.compress(content, mtime=0), digest)


def address_of(name: str) -> str:
    """The address of a file."""
    return static_files()[name].address
