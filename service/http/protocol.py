"""The HTTP protocol of a connection, between the sockets and the app.

It extends uvicorn's protocol: request heads have a deadline, requests in excess are refused before any
work is done for them, and plain requests to fast routes go to the fast path without ASGI.

Each request gets one answer, in order. An unreadable request is refused after them with a problem body,
and the connection is closed in stages so that the client can read it.
"""

import asyncio
from asyncio import TimerHandle
from collections.abc import Callable, Coroutine, Iterable
from http import HTTPStatus
from typing import Any, ClassVar

import httptools
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from service.codec.wire import Header, encoded, request_id_of
from service.http.fast_path import FastPath, FastRequest
from service.http.problems import plain_answer
from service.http.rfc9112 import (
    MAX_HEAD_BYTES,
    BadHead,
    StagedTransport,
    check_size,
    check_target,
    checked_fields,
    expects_continue,
    head_without_upgrade,
)

Headers = Iterable[Header]
# The answer to a request in excess (URL, headers), without uvicorn's headers; None if there is room.
Excess = Callable[[bytes, Headers], bytes | None]
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\n"
BLANKS = b" \t"


def guarded_protocol(
    header_seconds: float, excess: Excess, fast_path: FastPath | None = None
) -> type[asyncio.Protocol]:
    """The protocol class for a server with this header timeout and this rule for excess requests."""

    class Protocol(_Guarded):
        _header_seconds = header_seconds
        _excess = staticmethod(excess)
        _fast_path = fast_path

    return Protocol


class _NoEvent:
    """Replaces the event of a cycle that no coroutine waits for."""

    def set(self) -> None:
        """Do nothing."""


class _Exchange:
    """A connection's requests on the fast path, one after the other.

    It takes the place of the protocol's `cycle` and has the attributes that uvicorn reads.
    """

    __slots__ = ("disconnected", "keep_alive", "protocol", "response_complete")
    message_event: ClassVar = _NoEvent()

    def __init__(self, protocol: "_Guarded") -> None:
        self.protocol: _Guarded | None = protocol  # until the connection is lost
        self.disconnected = False
        self.keep_alive = True
        self.response_complete = True

    def answer(self, status: int, head: bytes, body: bytes, *, is_last: bool) -> None:
        """Send the answer, unless one was already sent or the connection is lost."""
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
        """Run a coroutine as uvicorn runs requests."""
        assert self.protocol is not None  # noqa: S101 - the connection cannot be lost in between
        tasks = self.protocol.tasks
        task = self.protocol.loop.create_task(work)
        task.add_done_callback(tasks.discard)
        tasks.add(task)


class _Guarded(HttpToolsProtocol):
    transport: StagedTransport
    cycle: RequestResponseCycle  # of the newest request
    _header_seconds: float
    _excess: Excess
    _fast_path: FastPath | None = None
    _deadline: TimerHandle | None = None  # for the request head that is being read
    _is_in_head = False
    _head_bytes = 0  # received since the segment in which the request head began
    _segment_bytes = 0  # of the last segment
    _first_bytes = 0  # of the segment in which the request head began
    _is_in_body = False
    _due_answers = 0  # of requests that were handed over
    _refusal: bytes | None = None  # sent when the refused request has been read
    _fast: FastRequest | None = None  # handed over when its body is complete
    _content = b""  # the body of `_fast` so far
    _exchange: _Exchange | None = None  # made for the first request on the fast path
    _failure: HTTPStatus | None = None  # why reading stopped; sent after all due answers
    _idle_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(StagedTransport(transport, self.loop))
        self._begin_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_deadline()
        self._unset_keepalive_if_required()
        self.transport.note_lost()
        super().connection_lost(exc)
        if self._exchange is not None:
            self._exchange.protocol = None  # breaks a reference cycle

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            self.transport.discard(len(data))
            return
        if self._failure is not None:
            return
        self._segment_bytes = len(data)
        self._head_bytes = self._head_bytes + len(data) if self._is_in_head else 0
        self._feed(data)
        if self._fast is not None:
            self._take_slow_path()  # its body arrives in parts
        elif self._is_in_head and self._head_bytes > MAX_HEAD_BYTES:
            self._fail(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        # Nearly all requests arrive in one piece and need no timer.
        is_awaited = self._is_in_head or self._refusal is not None
        if is_awaited and self._deadline is None:
            self._begin_deadline()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer complete requests: the client may have closed only its sending side."""
        self.transport.note_eof()
        if self._is_in_head or self._is_in_body:
            self._fail(HTTPStatus.BAD_REQUEST)
        if self._failure is None and self._is_answering():
            self.cycle.keep_alive = False  # no more requests can follow
        return self._is_answering()

    def shutdown(self) -> None:
        if self._is_answering():
            self.cycle.keep_alive = False
        else:
            self.transport.close_at_once()

    def _feed(self, data: bytes) -> None:
        try:
            rest = self._parse_until_upgrade(data)
            while rest is not None:
                self._parse_without_upgrade()
                rest = self._parse_until_upgrade(rest)
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if not isinstance(cause, BadHead):
                raise  # a bug: it is logged, and the connection is closed
            self._fail(cause.status)
        except httptools.HttpParserError:
            self._fail(HTTPStatus.BAD_REQUEST)

    def _parse_until_upgrade(self, data: bytes | memoryview) -> memoryview | None:
        """The bytes after the first request head with an Upgrade; None if there is none."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            return memoryview(data)[upgrade.args[0] :]
        return None

    def _parse_without_upgrade(self) -> None:
        """Parse the request head again without its Upgrade: the parser would not read its body."""
        version = self.parser.get_http_version()
        head = head_without_upgrade(self.parser.get_method(), self.url, version, self.headers)
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.parser.feed_data(head)

    def on_message_begin(self) -> None:
        # uvicorn makes a scope here; the slow path does so later.
        if self.transport.is_closing():
            raise BadHead(HTTPStatus.BAD_REQUEST)  # it could not be answered
        self._is_in_head, self._first_bytes = True, self._segment_bytes
        self.url, self.headers, self.expect_100_continue = b"", [], False

    def on_header(self, name: bytes, value: bytes) -> None:
        # A trailer comes after the body and must not change the validated request.
        if self._is_in_head:
            self.headers.append((name.lower(), value.rstrip(BLANKS)))

    def on_headers_complete(self) -> None:
        if self._first_bytes + self._head_bytes > MAX_HEAD_BYTES:
            check_size(self.parser.get_method(), self.url, self.headers)
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise BadHead(HTTPStatus.NOT_IMPLEMENTED)
            return  # it is parsed again without the Upgrade
        version = self.parser.get_http_version()
        check_target(self.url)
        fields = checked_fields(version, self.headers)
        self.expect_100_continue = expects_continue(version, fields)
        self._is_in_head, self._is_in_body = False, True
        self._end_deadline()
        # The app refuses pipelined requests and those that expect 100 Continue.
        if not self._is_answering() and not self.expect_100_continue:
            self._refusal = self._excess(self.url, self.headers)
            if self._refusal is None and version == "1.1":
                self._fast = self._for_fast_path()
        if self._refusal is None and self._fast is None:
            self._take_slow_path()

    def on_body(self, body: bytes) -> None:
        if self._fast is not None:
            self._content += body
        elif self._refusal is None:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._is_in_body = False
        if self._fast is not None:
            request, content = self._fast, self._content
            self._fast, self._content = None, b""
            self._take_fast_path(request, content)
        elif self._refusal is not None:
            self._send_refusal(self._refusal)
        else:
            super().on_message_complete()

    def _for_fast_path(self) -> FastRequest | None:
        """The request for the fast path; None if it must take the slow path.

        The last request of a connection and requests of slowly reading clients take the slow path.
        """
        can_write = not (self.flow.write_paused or self.flow.read_paused)
        if self._fast_path is None or not can_write or not self.parser.should_keep_alive():
            return None
        method = self.parser.get_method()
        return self._fast_path.find(method, self.url, self.headers, self.app_state)

    def _take_fast_path(self, request: FastRequest, content: bytes) -> None:
        assert self._fast_path is not None  # noqa: S101 - it found the request
        if self._exchange is None:
            self._exchange = _Exchange(self)
        self._exchange.response_complete = False
        self.cycle = self._exchange  # type: ignore[assignment]
        self._due_answers += 1
        self._fast_path.take(request, content, self._exchange)

    def _take_slow_path(self) -> None:
        """Start the request as uvicorn does, with the part of its body that has arrived."""
        url, headers, is_expected = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, is_expected
        self.headers += headers
        super().on_headers_complete()
        self._due_answers += 1
        content, self._content, self._fast = self._content, b"", None
        if content:
            super().on_body(content)

    def _send_refusal(self, answer: bytes) -> None:
        self._refusal = None
        self._end_deadline()
        self._due_answers += 1
        self.transport.write(b"".join((UNAVAILABLE, self.default_headers(), answer)))
        if not self.parser.should_keep_alive():
            self.transport.close()
        self.on_response_complete()

    def on_response_complete(self) -> None:
        # uvicorn makes a timer for each answer and cancels it for each request. Here a connection has
        # one timer, which checks the idle time when it fires.
        self.server_state.total_requests += 1
        self._due_answers -= 1
        if self.transport.is_closing():
            return
        if self.pipeline:
            self.flow.resume_reading()
            self._start_asgi_task(*self.pipeline.pop())
        elif self._failure is not None:
            self._send_failure(self._failure)
        else:
            self.flow.resume_reading()
            self._idle_since = self.loop.time()
            if self.timeout_keep_alive_task is None:
                self._watch(self.timeout_keep_alive)

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        is_asking = self._is_in_head or self._refusal is not None
        if is_asking or self._is_answering() or self.transport.is_closing():
            return  # the next answer starts another timer
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._watch(left)
        else:
            self.transport.close_at_once()

    def _watch(self, seconds: float) -> None:
        later = self.loop.call_later(seconds, self.timeout_keep_alive_handler)
        self.timeout_keep_alive_task = later

    def default_headers(self) -> bytes:
        """The server's own headers, encoded."""
        return encoded(self.server_state.default_headers)

    def _begin_deadline(self) -> None:
        self._deadline = self.loop.call_later(self._header_seconds, self._on_deadline)

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_deadline(self) -> None:
        self._deadline = None
        if self._is_answering():
            self._begin_deadline()  # an earlier request is being answered
        elif self._is_in_head:
            self._fail(HTTPStatus.REQUEST_TIMEOUT)
        else:
            self.transport.close_at_once()  # no request came, or a refused one does not end

    def _is_answering(self) -> bool:
        return self._due_answers > 0 and not self.transport.is_closing()

    def _fail(self, status: HTTPStatus) -> None:
        """Stop reading, and refuse the unreadable request after the due answers."""
        if self.transport.is_closing():
            return
        if self._has_answer_after_drop():
            self.transport.close()
        elif self._is_answering():
            self._failure = status
            self.flow.pause_reading()
        else:
            self._send_failure(status)

    def _has_answer_after_drop(self) -> bool:
        """Drop the request that was being read; returns whether its answer had begun."""
        is_begun = self._is_in_body and self._fast is None and self._refusal is None
        self._is_in_head = self._is_in_body = False
        self._fast = self._refusal = None
        self._end_deadline()
        if not is_begun:
            return False
        dropped = self.cycle
        dropped.disconnected = True
        dropped.message_event.set()
        if self.pipeline and self.pipeline[0][0] is dropped:
            self.pipeline.popleft()
        if not dropped.response_complete:
            self._due_answers -= 1
        return dropped.response_started

    def _send_failure(self, status: HTTPStatus) -> None:
        request_id = request_id_of(())  # the caller's id cannot be read
        answer = plain_answer(status.value, request_id)
        head = answer.head(request_id) + b"connection: close\r\n\r\n"
        whole = (STATUS_LINE[status.value], self.default_headers(), head, answer.body)
        self.transport.write(b"".join(whole))
        self.transport.close()
