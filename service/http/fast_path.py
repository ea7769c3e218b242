"""The express lane: a plain request to a hot route passes the whole door in one step, and needs no ASGI.

The layers of the door are there for what they refuse, delay or change. Of a request for a hot route
whose body is there, which no browser's page sent and for which there is room, that can only be its
key: it is asked for, counted, timed and answered here, by the layers' own methods. The server hands
such requests over as they come; all others pass the layers one by one.
"""

from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from service.codec.wire import Answer, Header, request_id_of
from service.errors import ServiceError
from service.http.auth import Guard
from service.http.hot_routes import Call, HotRoutes
from service.http.load_shedding import Shedding
from service.http.middleware import Limits, RequestScope
from service.ops import logs

# What a layer has to look at: pages of other origins, compression, a body that is asked for or endless.
SPECIAL = frozenset({b"origin", b"content-encoding", b"expect", b"transfer-encoding"})
FastRequest = dict[str, Any]  # the ASGI scope of a request on the fast path


class Exchange(Protocol):
    """The server's side of a request: takes the answer, and runs what it takes to make it."""

    def answer(self, status: int, head: bytes, body: bytes, *, is_last: bool) -> None:
        """Send status, encoded headers (without the empty line) and body; hang up after the last."""

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it beside other requests; a server that stops waits for it."""


class ExpressLane:
    """Answers plain requests to hot routes."""

    def __init__(
        self,
        *,
        routes: HotRoutes,
        guard: Guard,
        requests: RequestScope,
        shedding: Shedding,
        limits: Limits,
    ) -> None:
        self.requests = requests
        self.shedding = shedding
        self.routes = routes
        self._guard = guard
        self._limits = limits

    def find(
        self, method: bytes, url: bytes, headers: Sequence[Header], state: Mapping[str, Any]
    ) -> FastRequest | None:
        """The request that has this head; none if the layers must look at it."""
        is_open = self.shedding.has_room and not self.requests.is_last
        if method != b"POST" or not is_open or b"#" in url:
            return None
        path, _, query = url.partition(b"?")
        route = self.routes.at(path.decode("latin-1"))
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
        """Answer a request whose body is all there, now or later."""
        reply = _Reply(self, request, exchange)
        token = logs.resume(reply.fields)
        try:
            refusal = self._guard.admit(request)
            reply.fields = logs.context()
            if refusal is None:
                request["route"].begin(Call(request, content), reply)
            else:
                reply.answer(refusal)
        except Exception as error:  # noqa: BLE001 - the last one who can answer
            reply.fail(error)
        finally:
            logs.leave(token)  # the caller goes on with other requests

    def _is_plain(self, headers: Mapping[bytes, bytes]) -> bool:
        is_small = self._limits.is_small(headers.get(b"content-length", b"0"))
        return is_small and SPECIAL.isdisjoint(headers)


class _Reply:
    """A request on the lane: answered once, and then over."""

    __slots__ = ("_entered", "_exchange", "_lane", "_path", "_request_id", "fields")

    def __init__(self, lane: ExpressLane, request: FastRequest, exchange: Exchange) -> None:
        self._lane = lane
        self._path = request["path"]
        self._exchange = exchange
        self._request_id = request_id_of(request["headers"])
        self._entered = lane.shedding.enter()
        self.fields: Mapping[str, Any] = {"request_id": self._request_id}  # of its log lines

    def answer(self, answer: Answer) -> None:
        """Send this."""
        is_last = answer.closes or self._lane.requests.is_last
        head = answer.head(self._request_id)
        try:
            self._exchange.answer(answer.status, head, answer.body, is_last=is_last)
        finally:
            self._end(answer.status)

    def fail(self, error: Exception) -> None:
        """Send what callers are told of the error."""
        token = logs.resume(self.fields)
        try:
            if isinstance(error, ServiceError):
                answer = self._lane.routes.refusal(error)
            else:
                answer = self._lane.requests.crash(error)
        finally:
            logs.leave(token)
        self.answer(answer)

    def later(self, work: Awaitable[Answer]) -> None:
        """Send what comes of the work."""
        self._exchange.run(self._worked(work))

    async def _worked(self, work: Awaitable[Answer]) -> None:
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
        seconds = self._lane.shedding.leave(self._entered)
        self._lane.requests.note(self._path, "POST", status, seconds, self.fields)
