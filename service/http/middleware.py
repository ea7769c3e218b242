"""The ASGI middleware of every request: first id, time and span, then the key, then the body.

The key is checked before the body is read, so that a request without a valid key costs almost nothing.
"""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextvars import Token
from dataclasses import dataclass
from typing import Any, NamedTuple

from msgspec.structs import replace
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.auth.access import METRICS, Access, declared, is_console
from service.auth.keys import EVERYONE, Caller
from service.auth.sessions import COOKIE
from service.codec.wire import CLOSE, Answer, Header, request_id_of
from service.errors import (
    KeyRefused,
    KeyRequired,
    Overloaded,
    PayloadTooLarge,
    ServiceError,
    UnsupportedMediaType,
)
from service.http.concurrency_limit import UNMATCHED, MetricsBuffer, is_crowded, paused
from service.http.problems import Problems, send_answer
from service.ops import logs, tracing
from service.ops.supervisor import Readiness

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})
# Paths whose bodies may have any size.
STREAMED = re.compile(
    r"/target/contexts|(/console)?/experiments/[^/]+/history|/console/create/tables"
    r"|(/console/experiments/[^/]+)?/evaluations/file"
)
SCHEME = "bearer"

log = logging.getLogger(__name__)


class Begun(NamedTuple):
    """A started request: its id, the token of its log context, its start time and its span."""

    request_id: str
    token: Token[Mapping[str, Any]]
    started: float
    span: "tracing.Span | None"


class RequestScope:
    """Gives a request its id and span, measures its time, and answers 500 if it crashes."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        problems: Problems,
        buffer: MetricsBuffer,
        readiness: Readiness,
        slow_seconds: float,
    ) -> None:
        self._app = app
        self._problems = problems
        self._buffer = buffer
        self._readiness = readiness
        self._slow_seconds = slow_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with a `send` that records the status."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = self.begin(scope["headers"])
        answer = _Answer(send, self, begun)
        try:
            with tracing.within(begun.span):
                await self._guarded(scope, receive, answer)
        finally:
            route = getattr(scope.get("route"), "path", UNMATCHED)
            method = scope["method"] if scope["method"] in METHODS else "other"
            self.end(begun, route, method, answer.status)
            logs.leave(begun.token)

    def begin(self, headers: Iterable[Header]) -> Begun:
        """Start a request: its id is in all log lines until `logs.leave` of its token."""
        request_id = request_id_of(headers)
        span = tracing.begin_request(headers, request_id)
        if span is None:
            token = logs.enter(request_id=request_id)
        else:
            token = logs.enter(request_id=request_id, trace_id=tracing.trace_id(span))
        return Begun(request_id, token, time.perf_counter(), span)

    def end(self, begun: Begun, route: str, method: str, status: int | None) -> None:
        """Record the end of a request in its own log context; `status` is None if it was not answered."""
        seconds = time.perf_counter() - begun.started
        self._buffer.add(route, method, status, seconds)
        if seconds > self._slow_seconds:
            details = {"action": "request_slow", "route": route, "seconds": round(seconds, 3)}
            log.warning("a request was slow", extra={**details, "status": status})
        if begun.span is not None:
            tracing.end_request(begun.span, method, route, status or 500)

    def headers(self, begun: Begun) -> list[Header]:
        """The headers that every answer gets."""
        identity = (b"x-request-id", begun.request_id.encode())
        return [identity, *([CLOSE] if self.is_last else ())]

    @property
    def is_last(self) -> bool:
        """Whether answers close their connections, so that callers move to another process before the stop."""
        return not self._readiness.is_ready

    def failure(self, error: Exception) -> Answer:
        """The answer to an error: a service error, or a crash."""
        if isinstance(error, ServiceError):
            return self._problems.answer(error)
        return self._problems.crash(error)

    async def _guarded(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        try:
            await self._app(scope, receive, answer)
        except Exception as error:  # noqa: BLE001 - the last place that can answer
            failure = self.failure(error)
            if answer.status is None:
                await send_answer(failure, answer)


class _Answer:
    """A `send` that records the status and adds our headers."""

    def __init__(self, send: Send, requests: RequestScope, begun: Begun) -> None:
        self.status: int | None = None
        self._send = send
        self._requests = requests
        self._begun = begun

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = self._requests.headers(self._begun)
            message["headers"] = [*message.get("headers", ()), *own]
        await self._send(message)


# The refusal of a request; None if it may pass, with its caller in the scope.
Admit = Callable[[Scope], Answer | None]
# The caller with a key or a session; raises `KeyRefused` or `RateLimited`.
FindCaller = Callable[[str], Caller]


class Guard:
    """Passes on the requests that `admit` does not refuse."""

    def __init__(self, app: ASGIApp, admit: Admit) -> None:
        self._app = app
        self.admit = admit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its caller, or refuse it."""
        if scope["type"] == "http" and (refusal := self.admit(scope)) is not None:
            await send_answer(refusal, send)
        else:
            await self._app(scope, receive, send)


def admit_everyone(scope: Scope) -> None:
    """Admit every request as the unnamed tenant, for a service on a loopback address."""
    scope["caller"] = EVERYONE


class Authorising:
    """Admits requests with a key that the route allows; a route without an access entry is refused.

    The console's pages take a session in a cookie instead of a key, and no other route does.
    """

    def __init__(
        self,
        *,
        problems: Problems,
        keys: FindCaller,
        sessions: FindCaller,
        is_metrics_open: bool,
    ) -> None:
        self._problems = problems
        self._keys = keys
        self._sessions = sessions
        self._open = frozenset({METRICS}) if is_metrics_open else frozenset()

    def admit(self, scope: Scope) -> Answer | None:
        """The refusal of a request; None if it may pass, with its caller in the scope."""
        methods = declared(scope["path"])
        access = (methods or {}).get("GET" if scope["method"] == "HEAD" else scope["method"])
        if access is Access.OPEN or scope["path"] in self._open:
            scope["caller"] = EVERYONE
            return None
        try:
            scope["caller"] = caller = self._caller(scope)
            logs.enter(key_id=caller.key_id)  # removed together with the request's own fields
            if access is not None:
                access.check(caller)
        except ServiceError as error:
            return self._refused(error, scope["method"])
        if methods is None:
            return self._problems.plain(404)
        if access is None:
            return self._problems.plain(405, {"Allow": ", ".join(sorted(methods))})
        return None

    def _caller(self, scope: Scope) -> Caller:
        if is_console(scope["path"]):
            return self._sessions(session_of(scope["headers"]))
        return self._keys(_key(scope["headers"]))

    def _refused(self, error: ServiceError, method: str) -> Answer:
        answer = self._problems.answer(error)
        has_no_key = isinstance(error, KeyRequired | KeyRefused)
        # The unread body of an unknown caller is not worth reading.
        return replace(answer, closes=has_no_key and method not in WITHOUT_BODY)


def _key(headers: Iterable[tuple[bytes, bytes]]) -> str:
    for name, value in headers:
        if name == b"authorization":
            scheme, _, key = value.decode("latin-1").partition(" ")
            if scheme.lower() != SCHEME:
                raise KeyRefused
            return key.strip()
    raise KeyRequired


def session_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The token of the session cookie; raises `KeyRequired` if there is none."""
    for name, value in headers:
        if name == b"cookie":
            for each in value.decode("latin-1").split(";"):
                key, _, token = each.strip().partition("=")
                if key == COOKIE:
                    return token
    raise KeyRequired


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the size and arrival time of a body."""

    max_body_bytes: int
    body_timeout_seconds: float
    max_upload_bytes: int = 4 << 30

    def is_small(self, declared: bytes) -> bool:
        """Whether a body of this `Content-Length` may be read into memory."""
        return _length(declared) <= self.max_body_bytes

    def check_size(self, size: int, *, is_upload: bool) -> None:
        """Raise `PayloadTooLarge` for a body of this size, declared or read so far."""
        limit = self.max_upload_bytes if is_upload else self.max_body_bytes
        if size > limit:
            raise PayloadTooLarge(max_bytes=limit)


class Admission:
    """Refuses bodies that are too large, too slow or compressed, before any work is done for them.

    Bodies are read here completely, except uploads, which their handler streams.
    """

    def __init__(self, app: ASGIApp, *, problems: Problems, limits: Limits) -> None:
        self._app = app
        self._problems = problems
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its complete body."""
        if scope["type"] != "http" or scope["method"] in WITHOUT_BODY:
            await self._app(scope, receive, send)
            return
        is_streamed = STREAMED.fullmatch(scope["path"]) is not None
        try:
            self._check_headers(scope["headers"], is_streamed)
            if is_streamed:
                await self._app(scope, self._patient(scope, receive), send)
                return
            body = await self._read(scope, receive)
        except (Overloaded, PayloadTooLarge, UnsupportedMediaType) as refusal:
            await _send_last(self._problems.answer(refusal), send)
        except TimeoutError:
            await _send_last(self._problems.plain(408), send)
        else:
            if body is None:
                return
            if is_crowded(scope):
                await send_answer(self._problems.answer(Overloaded()), send)
            else:
                await self._app(scope, _once(body, receive), send)

    def _patient(self, scope: Scope, receive: Receive) -> Receive:
        """A `receive` for a handler that streams a body, with a timeout for each piece."""
        size = 0

        async def receive_next() -> Message:
            nonlocal size
            with paused(scope):
                async with asyncio.timeout(self._limits.body_timeout_seconds):
                    message = await receive()
            size += len(message.get("body", b""))
            self._limits.check_size(size, is_upload=True)
            return message

        return receive_next

    def _check_headers(self, headers: Iterable[tuple[bytes, bytes]], is_streamed: bool) -> None:
        for name, value in headers:
            if name == b"content-length":
                self._limits.check_size(_length(value), is_upload=is_streamed)
            if name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
                raise UnsupportedMediaType("Compressed bodies are not supported.")

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """The body; None if the caller disconnected before its end."""
        reading = asyncio.create_task(self._pieces(receive))
        try:
            await asyncio.sleep(0)  # a body that has already arrived is read in this tick
            if reading.done():
                return reading.result()
            with paused(scope):
                async with asyncio.timeout(self._limits.body_timeout_seconds):
                    return await reading
        finally:
            reading.cancel()

    async def _pieces(self, receive: Receive) -> bytes | None:
        pieces: list[bytes] = []
        size = 0
        while (message := await receive())["type"] == "http.request":
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            self._limits.check_size(size, is_upload=False)
            if not message.get("more_body", False):
                return b"".join(pieces)
        return None


async def _send_last(answer: Answer, send: Send) -> None:
    """Send an answer and close the connection, without reading the rest of the body."""
    await send_answer(replace(answer, closes=True), send)


def _once(body: bytes, receive: Receive) -> Receive:
    """A `receive` that returns the body, then the messages after it."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_next() -> Message:
        return messages.pop() if messages else await receive()

    return receive_next


def _length(value: bytes) -> int:
    # Twenty digits already exceed every limit.
    return int(value[:20]) if value.isdigit() else 0
