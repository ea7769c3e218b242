"""The HTTP server's side of a connection: a deadline for headers, and refusals in our shape.

uvicorn waits for a request's headers for as long as they take. Here they have one deadline in all,
which no byte that drips in moves: a slow client costs a socket and a timer, and that not for long.

Plain requests to hot routes are handed to the express lane as soon as they are there: what uvicorn
sets up for a request, a task, messages and a scope among it, is for apps that nobody knows, and costs
as much as a decision.

Requests in excess are answered here, where no task and no scope of theirs has been made: at twice
the load that a process can take, most of what a refusal costs would be that.
"""

import asyncio
import json
from asyncio import TimerHandle
from collections.abc import Callable, Coroutine, Iterable
from http import HTTPStatus
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from service.errors import occurrence, plain_problem
from service.express_lane import ExpressLane, FastRequest
from service.http.staged_close import CloseLimits, StagedTransport
from service.records import uuid7
from service.security_headers import encoded

Headers = Iterable[tuple[bytes, bytes]]
# The answer to a request in excess (URL, headers), without uvicorn's headers; none if there is room.
Excess = Callable[[bytes, Headers], bytes | None]
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\n"


def guarded_protocol(
    header_seconds: float,
    excess: Excess,
    lane: ExpressLane | None = None,
    close_limits: CloseLimits | None = None,
) -> type[asyncio.Protocol]:
    """The protocol's class for a server that waits so long for headers and refuses what is too much."""

    class Protocol(_Guarded):
        _header_seconds = header_seconds
        _excess = staticmethod(excess)
        _lane = lane
        _close_limits = close_limits or CloseLimits()

    return Protocol


class _Unheard:
    """An event that nobody waits for."""

    def set(self) -> None:
        """Nothing happens."""


class _Exchange:
    """A connection's requests on the express lane, one after the other.

    It stands where uvicorn's cycle would, and has what that is asked for.
    """

    __slots__ = ("disconnected", "keep_alive", "protocol", "response_complete")
    message_event: ClassVar = _Unheard()

    def __init__(self, protocol: "_Guarded") -> None:
        self.protocol: _Guarded | None = protocol  # until the connection is lost
        self.disconnected = False
        self.keep_alive = True
        self.response_complete = True

    def answer(self, status: int, head: bytes, body: bytes, *, is_last: bool) -> None:
        """Send it, if the caller is still there and has no answer."""
        protocol, is_answered = self.protocol, self.response_complete
        self.response_complete = True
        if protocol is None or is_answered:
            return
        keeps = self.keep_alive and not is_last
        end = b"\r\n" if keeps else b"connection: close\r\n\r\n"
        whole = (STATUS_LINE[status], protocol.default_headers(), head, end, body)
        protocol.transport.write(b"".join(whole))
        if not keeps:
            protocol.transport.close()
        protocol.on_response_complete()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it as uvicorn runs requests."""
        assert self.protocol is not None, "it was there a moment ago"  # noqa: S101
        tasks = self.protocol.tasks
        task = self.protocol.loop.create_task(work)
        task.add_done_callback(tasks.discard)
        tasks.add(task)


class _Guarded(HttpToolsProtocol):
    transport: StagedTransport
    _header_seconds: float
    _excess: Excess
    _close_limits: CloseLimits
    _deadline: TimerHandle | None = None
    _is_in_headers = False
    _refusal: bytes | None = None  # waits for the end of the request that it answers
    _lane: ExpressLane | None = None
    _hot: FastRequest | None = None  # of a request for the lane whose end has not come
    _content = b""  # of its body
    _exchange: _Exchange | None = None  # once it had a request for the lane
    _idle_since = 0.0
    _encoded_headers: ClassVar[tuple[object, bytes]] = None, b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(StagedTransport(transport, self.loop, self._close_limits))
        self._begin_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_deadline()
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
        self.transport.note_lost()
        super().connection_lost(exc)
        if self._exchange is not None:
            self._exchange.protocol = None  # which refers to it

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            self.transport.discard(len(data))
            return
        super().data_received(data)
        if self._hot is not None and not self.transport.is_closing():
            self._take_the_long_way()  # its body comes in parts
        # What comes in one piece, as nearly all does, needs no timer.
        is_awaited = self._is_in_headers or self._refusal is not None
        if is_awaited and self._deadline is None:
            self._begin_deadline()

    def shutdown(self) -> None:
        if self._is_answering():
            self.cycle.keep_alive = False
        else:
            self.transport.close_at_once()

    def on_message_begin(self) -> None:
        # uvicorn makes a scope here; who takes the long way makes up for it.
        self._is_in_headers = True
        self.url, self.headers, self.expect_100_continue = b"", [], False

    def on_headers_complete(self) -> None:
        self._is_in_headers = False
        self._end_deadline()
        self._refusal = self._hot = None
        # What needs more than an answer after its end takes the long way, and is refused there.
        if not (self._is_answering() or self.expect_100_continue or self.parser.should_upgrade()):
            self._refusal = self._excess(self.url, self.headers)
            self._hot = self._for_lane() if self._refusal is None else None
        if self._refusal is None and self._hot is None:
            self._take_the_long_way()

    def on_body(self, body: bytes) -> None:
        if self._hot is not None:
            self._content += body
        elif self._refusal is None:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._hot is not None:
            hot, content = self._hot, self._content
            self._hot, self._content = None, b""
            self._pass_to_lane(hot, content)
        elif self._refusal is not None:
            self._send_refusal(self._refusal)
        else:
            super().on_message_complete()

    def _for_lane(self) -> FastRequest | None:
        """What the request asks of the lane, none if the lane is not for it.

        Connections that end with it, and callers who are slow to take answers, are not for the lane.
        """
        is_usual = self.parser.should_keep_alive() and self.parser.get_http_version() == "1.1"
        if self._lane is None or not is_usual or not self._can_write():
            return None
        method = self.parser.get_method()
        return self._lane.find(method, self.url, self.headers, self.app_state)

    def _can_write(self) -> bool:
        return not (self.flow.write_paused or self.flow.read_paused)

    def _pass_to_lane(self, hot: FastRequest, content: bytes) -> None:
        assert self._lane is not None  # noqa: S101 - it was the lane who found it
        if self._exchange is None:
            self._exchange = _Exchange(self)
        self._exchange.response_complete = False
        self.cycle = self._exchange  # type: ignore[assignment]
        self._lane.take(hot, content, self._exchange)

    def _take_the_long_way(self) -> None:
        """Begin the request as uvicorn does, with what has come of it."""
        url, headers, is_expected = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, is_expected
        self.headers += headers
        super().on_headers_complete()
        content, self._content, self._hot = self._content, b"", None
        if content:
            super().on_body(content)

    def _send_refusal(self, answer: bytes) -> None:
        self._refusal = None
        self._end_deadline()
        self.transport.write(b"".join((UNAVAILABLE, self.default_headers(), answer)))
        if self.parser.should_keep_alive():
            self.on_response_complete()
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        # uvicorn makes a timer for each answer, and takes it back for each request. A connection has one
        # here, which looks at how long it has been idle when it goes off.
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._watch(self.timeout_keep_alive)

    def _unset_keepalive_if_required(self) -> None:
        """Nothing: a timer that finds a request leaves it alone."""

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        is_asking = self._is_in_headers or self._refusal is not None
        if is_asking or self._is_answering() or self.transport.is_closing():
            return  # the next answer brings another timer
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._watch(left)
        else:
            self.transport.close_at_once()

    def _watch(self, seconds: float) -> None:
        later = self.loop.call_later(seconds, self.timeout_keep_alive_handler)
        self.timeout_keep_alive_task = later

    def default_headers(self) -> bytes:
        """The server's own, encoded."""
        headers = self.server_state.default_headers  # made anew every second
        if _Guarded._encoded_headers[0] is not headers:
            _Guarded._encoded_headers = headers, encoded(headers)
        return _Guarded._encoded_headers[1]

    def send_400_response(self, msg: str) -> None:
        self._refuse(HTTPStatus.BAD_REQUEST)

    def _begin_deadline(self) -> None:
        self._deadline = self.loop.call_later(self._header_seconds, self._on_deadline)

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_deadline(self) -> None:
        self._deadline = None
        if self._is_answering():
            self._begin_deadline()  # an earlier request is being answered: not into its answer
        elif self._is_in_headers:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
        else:
            self.transport.close_at_once()  # not a word was said

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # none before the first request
        return cycle is not None and not cycle.response_complete and not self.transport.is_closing()

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer a request that never became one, and hang up."""
        request_id = uuid7()
        content = json.dumps(plain_problem(status.value) | occurrence(request_id)).encode()
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\n"
            "content-type: application/problem+json\r\n"
            f"content-length: {len(content)}\r\n"
            f"x-request-id: {request_id}\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + content)
        self.transport.close()
