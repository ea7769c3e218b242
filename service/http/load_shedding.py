"""Refuses requests in excess before any work is done for them: no log line, no body is read."""

from collections.abc import Iterable

from msgspec.structs import replace
from starlette.types import ASGIApp, Receive, Scope, Send

from service.codec.wire import Answer, Header, request_id_of
from service.errors import Overloaded
from service.http.concurrency_limit import IN_FLIGHT, ConcurrencyLimit, InFlight, MetricsBuffer
from service.http.middleware import ALWAYS_OPEN, UNMATCHED
from service.http.problems import problem_answer, send_answer
from service.metrics import Metrics
from service.ops.supervisor import Readiness

Headers = Iterable[Header]


class Shedding:
    """Counts requests in and out, and answers 503 for those that would have to wait too long."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: Metrics,
        buffer: MetricsBuffer,
        readiness: Readiness,
        limit: ConcurrencyLimit,
    ) -> None:
        self._app = app
        self._limit = limit
        self._buffer = buffer
        self._problems = metrics.problems.labels(Overloaded.slug)
        self._readiness = readiness

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
        self._buffer.write_soon()
        return self._limit.enter()

    def leave(self, entered: float) -> float:
        """Count it out; the seconds that it took."""
        return self._limit.leave(entered)

    def early_refusal(self, url: bytes, headers: Headers) -> bytes | None:
        """The answer to a request in excess as it is sent; none where there is room.

        A process that is about to stop answers the long way, which closes the connection.
        """
        if self.has_room or not self._readiness.is_ready:
            return None
        if url.partition(b"?")[0].decode("ascii", "replace") in ALWAYS_OPEN:
            return None
        request_id = request_id_of(headers)
        refusal = self._refused(request_id)
        return b"%b\r\n%b" % (refusal.head(request_id), refusal.body)

    async def _work(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._buffer.write_soon()
        request = scope[IN_FLIGHT] = InFlight(self._limit)
        try:
            await self._app(scope, receive, send)
        finally:
            request.end()
            self._buffer.write_soon()

    async def _refuse(self, scope: Scope, send: Send) -> None:
        request_id = request_id_of(scope["headers"])
        refusal = self._refused(request_id)
        named = (*refusal.headers, (b"x-request-id", request_id.encode()))
        closes = not self._readiness.is_ready
        await send_answer(replace(refusal, headers=named, closes=closes), send)

    def _refused(self, request_id: str) -> Answer:
        """The answer to a request in excess, counted."""
        self._problems.inc()
        # No time to look at a clock: it was next to nothing.
        self._buffer.add(UNMATCHED, "POST", Overloaded.status, 0.0)
        return problem_answer(Overloaded(), request_id)
