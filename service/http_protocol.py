"""The HTTP server's side of a connection: a deadline for headers, and refusals in our shape.

uvicorn waits for a request's headers for as long as they take. Here they have one deadline in all,
which no byte that drips in moves: a slow client costs a socket and a timer, and that not for long.
"""

import asyncio
import json
from asyncio import TimerHandle
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from service.errors import occurrence, plain_problem
from service.records import uuid7


def protocol_with_deadline(header_seconds: float) -> type[asyncio.Protocol]:
    """The protocol's class for a server that waits so long for a request's headers."""

    class Protocol(_HeaderDeadline):
        _header_seconds = header_seconds

    return Protocol


class _HeaderDeadline(HttpToolsProtocol):
    _header_seconds: float
    _deadline: TimerHandle | None = None
    _is_in_headers = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # Headers that come in one piece, as nearly all do, need no timer.
        if self._is_in_headers and self._deadline is None:
            self._begin_deadline()

    def on_message_begin(self) -> None:
        self._is_in_headers = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_in_headers = False
        self._end_deadline()
        super().on_headers_complete()

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
