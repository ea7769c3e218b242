"""The HTTP server's side of a connection: a deadline for headers, and refusals in our shape.

uvicorn waits for a request's headers for as long as they take. Here they have one deadline in all,
which no byte that drips in moves: a slow client costs a socket and a timer, and that not for long.

An app may take a body that is there and hand over a whole answer at once, its headers encoded
(`WHOLE_BODY` and `WHOLE_ANSWER`, ASGI extensions): uvicorn's messages, checked header by header, are for
apps that nobody knows.

Requests in excess are answered here, where no task and no scope of theirs has been made: at twice
the load that a process can take, most of what a refusal costs would be that.
"""

import asyncio
import json
from asyncio import TimerHandle
from collections.abc import Callable, Iterable
from functools import partial
from http import HTTPStatus
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from service.errors import occurrence, plain_problem
from service.express_lane import WHOLE_ANSWER, WHOLE_BODY, WholeAnswer, WholeBody
from service.records import uuid7
from service.security_headers import encoded

Headers = Iterable[tuple[bytes, bytes]]
# The answer to a request in excess (URL, headers), without uvicorn's headers; none if there is room.
Excess = Callable[[bytes, Headers], bytes | None]
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\n"


def guarded_protocol(header_seconds: float, excess: Excess) -> type[asyncio.Protocol]:
    """The protocol's class for a server that waits so long for headers and refuses what is too much."""

    class Protocol(_Guarded):
        _header_seconds = header_seconds
        _excess = staticmethod(excess)

    return Protocol


class _Guarded(HttpToolsProtocol):
    _header_seconds: float
    _excess: Excess
    _deadline: TimerHandle | None = None
    _is_in_headers = False
    _refusal: bytes | None = None  # waits for the end of the request that it answers
    _encoded_headers: ClassVar[tuple[object, bytes]] = None, b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # What comes in one piece, as nearly all does, needs no timer.
        is_awaited = self._is_in_headers or self._refusal is not None
        if is_awaited and self._deadline is None:
            self._begin_deadline()

    def on_message_begin(self) -> None:
        self._is_in_headers = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_in_headers = False
        self._end_deadline()
        self._refusal = self._early_refusal()
        if self._refusal is None:
            super().on_headers_complete()
            body: WholeBody = partial(self._whole_body, self.cycle)
            answer: WholeAnswer = partial(self._answer_whole, self.cycle)
            self.scope["extensions"] = {
                WHOLE_BODY: {"receive": body},
                WHOLE_ANSWER: {"send": answer},
            }

    def on_body(self, body: bytes) -> None:
        if self._refusal is None:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._refusal is None:
            super().on_message_complete()
            return
        answer, self._refusal = self._refusal, None
        self._end_deadline()
        self.transport.write(b"".join((UNAVAILABLE, self._default_headers(), answer)))
        if self.parser.should_keep_alive():
            self.on_response_complete()
        else:
            self.transport.close()

    def _whole_body(self, cycle: RequestResponseCycle) -> bytes | None:
        # Who asks by messages sets going what was paused for a large body.
        if cycle.more_body or cycle.disconnected or self.flow.read_paused:
            return None
        return bytes(cycle.body)

    def _answer_whole(
        self, cycle: RequestResponseCycle, status: int, head: bytes, body: bytes
    ) -> bool:
        if cycle.response_started or cycle.disconnected or self.flow.write_paused:
            return False
        end = b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n"
        parts = STATUS_LINE[status], self._default_headers(), head, end, body
        self.transport.write(b"".join(parts))
        cycle.response_started = cycle.response_complete = True
        cycle.scope["extensions"] = {}  # they refer to the cycle, which refers to them
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()
        return True

    def _default_headers(self) -> bytes:
        headers = self.server_state.default_headers  # made anew every second
        if _Guarded._encoded_headers[0] is not headers:
            _Guarded._encoded_headers = headers, encoded(headers)
        return _Guarded._encoded_headers[1]

    def _early_refusal(self) -> bytes | None:
        # What needs more than an answer after its end takes the long way, and is refused there.
        if self._is_answering() or self.expect_100_continue or self.parser.should_upgrade():
            return None
        return self._excess(self.url, self.headers)

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
            self.transport.close()  # not a word was said

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # none before the first request
        return cycle is not None and not cycle.response_complete

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
