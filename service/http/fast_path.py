"""The fast path: a plain request to a fast route is answered without ASGI.

The middleware is there for what it refuses, delays or changes. A plain request is a POST to a fast route,
with its whole body, from no browser's page, while there is room. Only its key can be wrong, so the fast
path checks the key and calls the route. It uses the middleware's own methods: same ids, times, metrics.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from service.codec.wire import Answer, Header
from service.http.auth import Guard
from service.http.fast_routes import FastRoutes
from service.http.load_shedding import Shedding
from service.http.middleware import Begun, Limits, RequestScope
from service.ops import logs, tracing

# The middleware looks at these: other origins, compression, a body that is asked for or endless.
SPECIAL = frozenset({b"origin", b"content-encoding", b"expect", b"transfer-encoding"})
FastRequest = dict[str, Any]  # the ASGI scope of a request on the fast path


class Exchange(Protocol):
    """The server's side of a request: takes the answer, and runs what it takes to make it."""

    def answer(self, status: int, head: bytes, body: bytes, *, is_last: bool) -> None:
        """Send status, encoded headers (without the empty line) and body; hang up after the last."""

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it beside other requests; a server that stops waits for it."""


class FastPath:
    """Answers plain requests to fast routes."""

    def __init__(
        self,
        *,
        routes: FastRoutes,
        guard: Guard,
        requests: RequestScope,
        shedding: Shedding,
        limits: Limits,
    ) -> None:
        self.requests = requests
        self.shedding = shedding
        self._routes = routes
        self._guard = guard
        self._limits = limits

    def find(
        self, method: bytes, url: bytes, headers: Sequence[Header], state: Mapping[str, Any]
    ) -> FastRequest | None:
        """The request that has this head; none if it must pass the middleware."""
        is_open = self.shedding.has_room and not self.requests.is_last
        if method != b"POST" or not is_open or b"#" in url:
            return None
        path, _, query = url.partition(b"?")
        route = self._routes.at(path.decode("latin-1"))
        if route is None or not self._is_plain(dict(headers)):
            return None
        return {
            "type": "http",
            "method": "POST",
            "path": route.path,
            "query_string": query,
            "headers": headers,
            "state": state,
            "route": route,
        }

    def take(self, request: FastRequest, content: bytes, exchange: Exchange) -> None:
        """Answer a request whose body is complete, now or later."""
        begun = self.requests.begin(request["headers"])
        reply = _Reply(self, request["path"], begun, exchange)
        try:
            with tracing.within(begun.span):
                refusal = self._guard.admit(request)
                if refusal is not None:
                    reply.answer(refusal)
                else:
                    reply.wait(request["route"].answer(request, content))
        except Exception as error:  # noqa: BLE001 - the last one who can answer
            reply.fail(error)
        finally:
            logs.leave(begun.token)  # the connection goes on with other requests

    def _is_plain(self, headers: Mapping[bytes, bytes]) -> bool:
        is_small = self._limits.is_small(headers.get(b"content-length", b"0"))
        return is_small and SPECIAL.isdisjoint(headers)


class _Reply:
    """The answer to a request on the fast path, sent once.

    All its methods run in the request's own context, which its log lines are of.
    """

    __slots__ = ("_begun", "_entered", "_exchange", "_fast_path", "_route")

    def __init__(self, fast_path: FastPath, route: str, begun: Begun, exchange: Exchange) -> None:
        self._fast_path = fast_path
        self._route = route
        self._begun = begun
        self._exchange = exchange
        self._entered = fast_path.shedding.enter()

    def wait(self, pending: Awaitable[Answer]) -> None:
        """Send what comes of a future or a coroutine."""
        if isinstance(pending, asyncio.Future):
            pending.add_done_callback(self._take)  # without a task: a select has one future
        else:
            self._exchange.run(self._finish(pending))

    def answer(self, answer: Answer) -> None:
        """Send this."""
        is_last = answer.closes or self._fast_path.requests.is_last
        head = answer.head(self._begun.request_id)
        try:
            self._exchange.answer(answer.status, head, answer.body, is_last=is_last)
        finally:
            self._end(answer.status)

    def fail(self, error: Exception) -> None:
        """Send what callers are told of an error."""
        self.answer(self._fast_path.requests.failure(error))

    def _take(self, future: asyncio.Future[Answer]) -> None:
        error = future.exception()
        if error is None:
            self.answer(future.result())
        elif isinstance(error, Exception):
            self.fail(error)

    async def _finish(self, work: Awaitable[Answer]) -> None:
        try:
            answer = await work
        except Exception as error:  # noqa: BLE001 - the last one who can answer
            self.fail(error)
        except BaseException:
            self._end(None)
            raise
        else:
            self.answer(answer)

    def _end(self, status: int | None) -> None:
        self._fast_path.shedding.leave(self._entered)
        self._fast_path.requests.end(self._begun, self._route, "POST", status)
