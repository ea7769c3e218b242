"""What h11, another implementation of HTTP/1.1, reads in a stream of bytes."""

import re
from typing import NamedTuple

import h11

Header = tuple[bytes, bytes]


class Request(NamedTuple):
    """A request as a server reads it."""

    method: bytes
    target: bytes
    headers: list[Header]
    body: bytes


class Reading(NamedTuple):
    """The requests of a stream, and how it ends."""

    requests: list[Request]
    is_refused: bool  # what comes after them is no request
    is_closed: bool  # by the server: after a refusal, or after a request that asks for it
    messages: list[bytes]  # of each message, all bytes from its beginning on


def read_by_h11(content: bytes, *, has_end: bool) -> Reading:
    """What a server by h11 would answer; with an end, the client closes its sending side."""
    requests: list[Request] = []
    messages: list[bytes] = []
    is_refused = is_closed = False
    while not is_closed and (content := _normal(content)):
        messages.append(content)
        connection = h11.Connection(h11.SERVER)
        connection.receive_data(content)
        if has_end:
            connection.receive_data(b"")
        try:
            request = _request(connection)
        except h11.RemoteProtocolError:
            is_refused = is_closed = True
        else:
            if request is None:  # it is not complete
                break
            requests.append(request)
            is_closed = not _keeps_alive(connection)
            content = connection.trailing_data[0]
    return Reading(requests, is_refused, is_closed, messages)


def _normal(content: bytes) -> bytes:
    """Where h11 is stricter than RFC 9112 asks for, the content as h11 takes it.

    Section 2.2: empty lines before a request are ignored. Section 3: the words of a request line may
    be separated by more than one space.
    """
    return re.sub(rb"^([A-Z]+) +([^ ]+) +", rb"\1 \2 ", content.lstrip(b"\r\n"))


def _request(connection: h11.Connection) -> Request | None:
    head = connection.next_event()
    if not isinstance(head, h11.Request):
        return None
    body = b""
    while isinstance(event := connection.next_event(), h11.Data):
        body += event.data
    if not isinstance(event, h11.EndOfMessage):
        return None
    return Request(head.method, head.target, list(head.headers), body)


def _keeps_alive(connection: h11.Connection) -> bool:
    """Answer the request; whether the connection goes on."""
    connection.send(h11.Response(status_code=404, headers=[("content-length", "0")]))
    connection.send(h11.EndOfMessage())
    return connection.our_state is not h11.MUST_CLOSE
