"""What every request passes, as plain ASGI: its id and time, then the limits at the door."""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from contextvars import Token
from dataclasses import dataclass
from typing import Any, NamedTuple

from msgspec.structs import replace
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.codec.wire import CLOSE, Answer, Header, protected, request_id_of
from service.errors import Overloaded, PayloadTooLarge, UnsupportedMediaType
from service.http.concurrency_limit import MetricsBuffer, is_crowded, paused
from service.http.problems import Problems, send_answer
from service.http.promptly import Promptly
from service.ops import logs, tracing
from service.ops.supervisor import Readiness

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})
STREAMED = frozenset({"/target/contexts"})
UNMATCHED = "unmatched"  # the route of requests that no route was looked for, or found
ALWAYS_OPEN = frozenset({"/healthz", "/readyz", "/metrics"})

log = logging.getLogger(__name__)


class RequestScope:
    """Gives a request its id, times it, and answers for it when it crashes."""

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
        """Pass a request on, with a send that notes what is answered."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = self.begin(scope)
        answer = _Answer(send, self, begun)
        try:
            await self._guarded(scope, receive, answer)
        finally:
            self.end(scope, begun, answer.status)

    def begin(self, scope: Scope) -> "Begun":
        """Give a request its id, which all its log lines have until its end."""
        request_id = request_id_of(scope["headers"])
        return Begun(request_id, logs.enter(request_id=request_id), time.perf_counter())

    def end(self, scope: Scope, begun: "Begun", status: int | None) -> None:
        """Note how a request ended; its log lines end here."""
        seconds = time.perf_counter() - begun.started
        route = getattr(scope.get("route"), "path", UNMATCHED)
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.note(route, method, status, seconds, logs.context())
        logs.leave(begun.token)

    def headers(self, begun: "Begun") -> list[Header]:
        """What every answer says of its request."""
        identity = (b"x-request-id", begun.request_id.encode())
        return [identity, *([CLOSE] if self.is_last else ())]

    @property
    def is_last(self) -> bool:
        """Whether an answer now is the last on its connection, so that callers find another process in time."""
        return not self._readiness.is_ready

    def crash(self, error: Exception) -> Answer:
        """What a request is answered that a bug has ended."""
        return self._problems.crash(error)

    async def _guarded(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        try:
            await self._app(scope, receive, answer)
        except Exception as error:  # noqa: BLE001 - the last one who can answer
            crash = self.crash(error)
            if answer.status is None:
                await send_answer(crash, answer)

    def note(
        self,
        route: str,
        method: str,
        status: int | None,
        seconds: float,
        fields: Mapping[str, Any],
    ) -> None:
        """Note what a request was answered, none if it was not, how long that took, and what its log lines have."""
        self._buffer.add(route, method, status, seconds)
        if seconds > self._slow_seconds:
            details = {"action": "request_slow", "route": route, "seconds": round(seconds, 3)}
            token = logs.resume(fields)
            log.warning("a request was slow", extra={**details, "status": status})
            logs.leave(token)


class Begun(NamedTuple):
    """A request at work: its id, what its log lines had before, and when it came."""

    request_id: str
    token: Token[Mapping[str, Any]]
    started: float


class _Answer:
    """A `send` that remembers the status and adds our headers."""

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


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request may cost before it is refused."""

    max_body_bytes: int
    body_timeout_seconds: float
    max_upload_bytes: int = 4 << 30

    def is_small(self, declared: bytes) -> bool:
        """Whether a body of this `Content-Length` may be read into memory."""
        return _length(declared) <= self.max_body_bytes

    def check_size(self, size: int, *, is_upload: bool) -> None:
        """Raise `PayloadTooLarge` for a body of so many bytes, declared or read so far."""
        limit = self.max_upload_bytes if is_upload else self.max_body_bytes
        if size > limit:
            raise PayloadTooLarge(max_bytes=limit)


class Admission:
    """Refuses what is too much or cannot be read, before any work is done for it.

    Bodies are read here, whole: a handler never sees half of one. Uploads alone are read by their
    handler, which keeps them out of memory.
    """

    def __init__(self, app: ASGIApp, *, problems: Problems, limits: Limits) -> None:
        self._app = app
        self._problems = problems
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its body read."""
        if scope["type"] != "http" or scope["method"] in WITHOUT_BODY:
            await self._app(scope, receive, send)
            return
        is_streamed = scope["path"] in STREAMED
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
        """A `receive` for a handler that reads a long body by itself: each piece is waited for."""
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
                raise UnsupportedMediaType("Bodies are read as they are, without compression.")

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """The body; none when the caller has gone away before its end."""
        reading = Promptly(self._pieces(receive))
        if reading.is_done:  # all of it was there, as nearly always: no clock is needed
            return reading.result
        with paused(scope):
            async with asyncio.timeout(self._limits.body_timeout_seconds):
                return await reading

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
    """Send an answer and close the connection: the rest of the body is not wanted."""
    await send_answer(replace(answer, closes=True), send)


def _once(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body, then what comes after it."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_next() -> Message:
        return messages.pop() if messages else await receive()

    return receive_next


def _length(value: bytes) -> int:
    # Twenty digits are more than enough to be too much.
    return int(value[:20]) if value.isdigit() else 0


class SecurityHeaders:
    """Adds them to each answer; what an answer says by itself stands."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with a send that adds the headers."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = protected(message.get("headers", ()))
            await send(message)

        await self._app(scope, receive, send_with_headers)


class RequestTracing:
    """Opens a request's span inside its scope, where its id is known."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on within its span, named by its route in the end."""
        if scope["type"] != "http" or not tracing.is_on():
            await self._app(scope, receive, send)
            return
        status = 500  # of a request that crashes, as its scope answers it

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with tracing.request_span(_text(scope), logs.context()["request_id"]) as span:
            # Taken back by the request's scope, whose last lines are to have it, too.
            logs.enter(trace_id=tracing.trace_id(span))
            try:
                await self._app(scope, receive, noting)
            finally:
                route = getattr(scope.get("route"), "path", "unmatched")
                tracing.end_request(span, scope["method"], route, status)


def _text(scope: Scope) -> dict[str, str]:
    """The headers as OpenTelemetry reads them."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
