"""The console's scripts and styles, at addresses that change with their content, compressed once."""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

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
        return TYPES[_suffix(self.name)]


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
    found = (_static_file(each) for each in folder.iterdir() if _suffix(each.name) in TYPES)
    return {each.name: each for each in found}


def _static_file(file: Traversable) -> StaticFile:
    content = file.read_bytes()
    if file.name == OWN_STYLE:
        content = (files("service.pages") / "templates" / "palette.css").read_bytes() + content
    digest = hashlib.sha256(content).hexdigest()[:12]
    return StaticFile(file.name, content, gzip.compress(content, mtime=0), digest)


def _suffix(name: str) -> str:
    return name.rpartition(".")[2]


def address_of(name: str) -> str:
    """The address of a file."""
    return static_files()[name].address
