"""Refuses requests in excess as early and as cheaply as can be: before ids, logs and bodies.

At twice the load that the service can take, every second request is refused. What that costs is
missing for the others, so a refusal is made of parts that were put together once.
"""

import json
from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import Overloaded, occurrence
from service.http.concurrency_limit import VISIT, ConcurrencyLimit, RequestTally, Visit
from service.http.middleware import ALWAYS_OPEN, UNMATCHED, encoded, protected, request_id_of
from service.http.problems import MEDIA_TYPE
from service.metrics import Metrics
from service.ops.supervisor import Readiness

Headers = Iterable[tuple[bytes, bytes]]
_PLACE = "@"  # stands for the request's id, which alone differs


class Shedding:
    """Counts requests in and out, and answers 503 for those that would have to wait too long."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: Metrics,
        tally: RequestTally,
        readiness: Readiness,
        limit: ConcurrencyLimit,
    ) -> None:
        self._app = app
        self._limit = limit
        self._tally = tally
        self._problems = metrics.problems.labels(Overloaded.slug)
        self._readiness = readiness
        self._refusal = Refusal(readiness)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on while there is room."""
        if scope["type"] != "http" or scope["path"] in ALWAYS_OPEN:
            await self._app(scope, receive, send)
        elif self.has_room:
            await self._work(scope, receive, send)
        else:
            await self._refuse(scope, send)

    @property
    def has_room(self) -> bool:
        """Whether one more request may be at work."""
        return self._limit.is_open

    def enter(self) -> float:
        """Count a request in whose body is there; what is returned is for `leave`."""
        self._tally.tell_soon()
        return self._limit.enter()

    def leave(self, entered: float) -> float:
        """Count it out; the seconds that it took, for the tally."""
        return self._limit.leave(entered)

    def early_refusal(self, url: bytes, headers: Headers) -> bytes | None:
        """The answer to a request in excess as it is sent; none where there is room.

        A process that is about to stop answers the long way, which closes the connection.
        """
        if self.has_room or not self._readiness.is_ready:
            return None
        if url.partition(b"?")[0].decode("ascii", "replace") in ALWAYS_OPEN:
            return None
        self._count()
        return self._refusal.encoded(request_id_of(headers))

    async def _work(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._tally.tell_soon()
        visit = scope[VISIT] = Visit(self._limit)
        try:
            await self._app(scope, receive, send)
        finally:
            visit.end()
            self._tally.tell_soon()

    def _count(self) -> None:
        self._problems.inc()
        # No time to look at a clock: it was next to nothing.
        self._tally.add(UNMATCHED, "POST", Overloaded.status, 0.0)

    async def _refuse(self, scope: Scope, send: Send) -> None:
        self._count()
        for message in self._refusal.messages(request_id_of(scope["headers"])):
            await send(message)


class Refusal:
    """The answer to a request in excess, in the shape of every other problem."""

    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness
        error = Overloaded()
        problem = error.problem() | occurrence(_PLACE)
        self._parts = json.dumps(problem, ensure_ascii=False).encode().split(_PLACE.encode())
        self._headers = [
            (b"content-type", MEDIA_TYPE.encode()),
            (b"retry-after", str(error.retry_after_seconds).encode()),
        ]
        self._status = error.status
        self._head = encoded(protected(self._headers))

    def encoded(self, request_id: str) -> bytes:
        """Headers and content as they are sent."""
        identity = request_id.encode()
        content = identity.join(self._parts)
        last = b"content-length: %d\r\nx-request-id: %b\r\n\r\n" % (len(content), identity)
        return self._head + last + content

    def messages(self, request_id: str) -> tuple[Message, Message]:
        """What is sent to the caller."""
        identity = request_id.encode()
        content = identity.join(self._parts)
        length = (b"content-length", str(len(content)).encode())
        headers = [*self._headers, length, (b"x-request-id", identity)]
        if not self._readiness.is_ready:
            headers.append((b"connection", b"close"))
        start = {"type": "http.response.start", "status": self._status, "headers": headers}
        return start, {"type": "http.response.body", "body": content}
