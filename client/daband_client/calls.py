"""Calls without any I/O: what is sent, and how the answer is read."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import httpx
import msgspec

from daband_client.answers import State
from daband_client.bodies import AsyncFileBody, FileBody
from daband_client.errors import AnswerError, ContextError, ProblemError
from daband_client.images import Image, content, is_image

T = TypeVar("T")

MSGPACK = "application/msgpack"
BYTES = "application/octet-stream"
JSON_LINES = "application/x-ndjson"
ZIP = "application/zip"
LONG_SECONDS = 300.0
IMPORT_SECONDS = 3600.0  # the answer follows the last of 10^6 rows


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request and the type of its answer; `bytes` and `str` are taken as they come.

    `timeout_seconds` is for a call that the client's own timeout is too short for.
    """

    method: str
    path: str
    answer: type[T]
    body: Any = None
    media: str = MSGPACK
    timeout_seconds: float | None = None

    def request(self) -> dict[str, Any]:
        """The arguments of httpx's `request`."""
        found: dict[str, Any] = {"method": self.method, "url": self.path}
        if self.body is not None:
            is_encoded = isinstance(self.body, bytes | FileBody | AsyncFileBody)
            found["content"] = self.body if is_encoded else packed(self.body)
            found["headers"] = {"Content-Type": self.media}
        if self.timeout_seconds is not None:
            found["timeout"] = self.timeout_seconds
        return found

    def read(self, response: httpx.Response) -> T:
        """The answer; `ProblemError` where the service refuses."""
        if not response.is_success:
            raise ProblemError(response.status_code, _problem(response))
        try:
            return _decoded(response.content, self.answer)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise AnswerError(
                f"{response.url} answered {self.method} with what is no {self.answer.__name__}: {error}"
            ) from error


def path(*parts: object, **query: object) -> str:
    """A path of these parts, with the parameters that are not none; a list is repeated."""
    given = {name: value for name, value in query.items() if value is not None}
    found = "".join(f"/{quote(str(part), safe='')}" for part in parts)
    return f"{found}?{urlencode(given, doseq=True)}" if given else found


def given(**fields: Any) -> dict[str, Any]:
    """A body of the fields that are not none."""
    return {name: value for name, value in fields.items() if value is not None}


def packed(body: Any) -> bytes:
    """As msgpack; scalars and arrays of numpy inside lists become plain numbers."""
    return msgspec.msgpack.encode(body, enc_hook=_plain)


def json_line(body: Any) -> bytes:
    """As a line of JSON."""
    return msgspec.json.encode(body, enc_hook=_plain) + b"\n"


def _plain(given: Any) -> Any:
    if isinstance(given, Image):
        return given.body()
    if is_image(given):
        return content(given)  # of `{"image": …}`
    if hasattr(given, "tolist"):
        return given.tolist()
    raise ContextError(f"a {type(given).__name__} inside a context cannot be sent")


def _decoded(body: bytes, kind: type[T]) -> T:
    if kind is bytes:
        return body  # type: ignore[return-value]
    if kind is str:
        return body.decode()  # type: ignore[return-value]
    found = msgspec.json.decode(body, type=kind)
    if isinstance(found, State):
        found.noted.update(_unknown(body, State))
    return found


def _unknown(content: bytes, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The fields of an answer that a struct has no place for."""
    known = {each.name for each in msgspec.structs.fields(kind)}
    found = msgspec.json.decode(content, type=dict[str, Any])
    return {name: value for name, value in found.items() if name not in known}


def _problem(response: httpx.Response) -> dict[str, Any]:
    try:
        found = response.json()
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    location = response.headers.get("Location")
    moved = f"; the address has moved to {location}" if location else ""
    return {"detail": f"{response.reason_phrase}{moved}"}
