"""Streams of bytes on real sockets: our server reads in them what h11 reads.

A failure shows the seed and the bytes of its case.
"""

import asyncio
import json
import re
from collections import Counter
from random import Random
from typing import Any

import pytest
import uvloop
from starlette.types import Receive, Scope, Send

from service.codec.wire import ALWAYS, OVERRIDABLE
from service.http.fast_path import SPECIAL, Exchange
from service.http.protocol import Headers, guarded_protocol
from tests.support.http.cases import (
    Case,
    Draft,
    cases,
    cut_everywhere,
    with_chunks,
    with_length,
    with_upgrade,
)
from tests.support.http.oracle import Header, Reading, Request, read_by_h11
from tests.support.http.raw import RawServer, Response, serving

FEW, MANY = 1000, 3500
FOREVER = 3600.0
LOOKALIKE = b"POST /fast HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\n\r\nhi"
REFUSALS = {400, 501, 505}

# What we refuse and h11 takes, and how to tell. All else that h11 reads as a request we must read so, too.
STRICTER = {
    "a line that ends in LF alone (RFC 9112, 2.2: a recipient may take it)": rb"[^\r]\n",
    "obsolete line folding (5.2: a server must refuse or replace it)": rb"\r\n[ \t]",
    "Content-Length beside Transfer-Encoding (6.1: a server may refuse it)": (
        rb"(?is)(content-length\s*:.*transfer-encoding\s*:|transfer-encoding\s*:.*content-length\s*:)"
    ),
    "several equal lengths (6.3: a recipient may refuse them)": (
        rb"(?is)(content-length\s*:.*content-length\s*:|content-length\s*:[^\r]*,)"
    ),
    "blanks after a chunk size (7.1 has none)": rb"\r\n[0-9a-fA-F]+[^\r\n]*[ \t]+\r\n",
    "bytes in a chunk extension that are no token (7.1.1)": rb"\r\n[0-9a-fA-F]+;",
    "control characters in a header (RFC 9110, 5.5)": rb"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]",
    "methods that the parser does not know, and tunnels": rb"^(?!(GET|POST|PUT|OPTIONS|DELETE) )",
    "a target that is no path and no URL (RFC 9112, 3.2)": rb"^[A-Z]+ +(?!/|https?://|\*)",
    "versions other than 1.0 and 1.1": rb"^[^\r\n]*HTTP/(?!1\.[01]\r)",
    "a Host that is no name with a port (3.2)": (
        rb"(?im)^host:[ \t]*(?![\w.~!$&'()*+;=%,-]*(:\d*)?[ \t]*\r$)"
    ),
}


class Echo:
    """Answers what it was asked, once the whole body is there."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, has_more = b"", True
        while has_more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            has_more = message["more_body"]
        query = scope["query_string"]
        target = scope["raw_path"] + (b"?" + query if query else b"")
        content = echoed(scope["method"].encode(), target, scope["headers"], body)
        headers = [(b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})


class EchoFastPath:
    """The same on the fast path, for posts to `/fast`; every second one is answered at once."""

    def __init__(self) -> None:
        self.taken = 0

    def find(self, method: bytes, url: bytes, headers: Headers, state: Any) -> Any:
        is_plain = SPECIAL.isdisjoint(dict(headers))
        is_fast = method == b"POST" and url.partition(b"?")[0] == b"/fast" and is_plain
        return (method, url, headers) if is_fast else None

    def take(self, request: Any, content: bytes, exchange: Exchange) -> None:
        self.taken += 1
        method, url, headers = request
        answer = echoed(method, url, headers, content)
        if self.taken % 2:
            self._answer(exchange, answer)
        else:
            exchange.run(self._answer_later(exchange, answer))

    async def _answer_later(self, exchange: Exchange, answer: bytes) -> None:
        await asyncio.sleep(0)
        self._answer(exchange, answer)

    def _answer(self, exchange: Exchange, answer: bytes) -> None:
        exchange.answer(200, b"content-length: %d\r\n" % len(answer), answer, is_last=False)


def echoed(method: bytes, target: bytes, headers: Headers, body: bytes) -> bytes:
    texts = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in headers]
    return json.dumps([method.decode(), target.decode(), texts, body.hex()]).encode()


def seen(response: Response) -> Request:
    """The request in an echo."""
    method, target, texts, body = response.content
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in texts]
    return Request(method.encode(), target.encode(), plain(headers), bytes.fromhex(body))


def plain(headers: list[Header]) -> list[Header]:
    """Headers without an upgrade, which we ignore, and with codings as h11 writes them."""
    coding = b"transfer-encoding"
    lowered = [(name, value.lower() if name == coding else value) for name, value in headers]
    return [each for each in lowered if each[0] != b"upgrade"]


def echo_request(random: Random) -> Draft:
    """A request for an echo; its body may look like a request."""
    method = random.choice([b"POST", b"POST", b"POST", b"GET", b"PUT", b"OPTIONS", b"DELETE"])
    targets = [b"/fast", b"/fast", b"/fast?a=b", b"/slow", b"http://here/slow?a=b"]
    bodies = [b"", b"{}", random.randbytes(random.randint(1, 30)), LOOKALIKE, b"0\r\n\r\n"]
    body = random.choice(bodies) if method in (b"POST", b"PUT") else b""
    return Draft(method, random.choice(targets), body)


def as_an_app_sees_it(request: Request) -> Request:
    """A request as h11 reads it, without what the server keeps from apps."""
    path = re.sub(rb"^[A-Za-z]+://[^/]*", b"", request.target).partition(b"#")[0].removesuffix(b"?")
    return request._replace(target=path, headers=plain(request.headers))


def read_by_us(responses: list[Response]) -> tuple[list[Request], bool]:
    """The requests that were answered, and whether what comes after them was refused."""
    refused = [each for each in responses if each.status != 200]
    assert refused in ([], responses[-1:]), "a refusal is the last answer"
    for each in refused:
        assert each.status in REFUSALS
        assert_is_problem(each)
    return [seen(each) for each in responses if each.status == 200], bool(refused)


def assert_is_problem(response: Response) -> None:
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["connection"] == "close"
    assert response.content["status"] == response.status
    for name, value in (*ALWAYS, *OVERRIDABLE):
        assert response.headers[name.decode()] == value.decode()


def reason_to_refuse(responses: list[Response], theirs: Reading) -> str | None:
    """Why we read less than h11 does; empty if we read the same, none if there is no reason."""
    requests, is_refused = read_by_us(responses)
    expected = [as_an_app_sees_it(each) for each in theirs.requests]
    if (requests, is_refused) == (expected, theirs.is_refused):
        return ""
    count = len(requests)
    if not is_refused or requests != expected[:count]:
        return None
    message = theirs.messages[count]
    return next((why for why, rule in STRICTER.items() if re.search(rule, message)), None)


async def compared(case: Case, server: RawServer) -> str:
    """Send a case; why we refuse what h11 takes, empty if we read the same."""
    # Where h11 closes the connection, so do we, whether the client half-closes it or not.
    half_closes = case.seed % 2 == 0 or not read_by_h11(case.content, has_end=False).is_closed
    theirs = read_by_h11(case.content, has_end=half_closes)
    responses = await server.answers(case, half_closes=half_closes)
    reason = reason_to_refuse(responses, theirs)
    assert reason is not None, f"\n{case}\nh11: {theirs}\nwe: {responses}"
    return reason


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_our_server_reads_what_h11_reads(count: int):
    fast_path: Any = EchoFastPath()

    async def main() -> Counter[str]:
        protocol = guarded_protocol(FOREVER, lambda url, headers: None, fast_path)
        async with serving(Echo(), protocol) as server:
            return Counter([await compared(each, server) for each in cases(count, echo_request)])

    found = uvloop.run(main())
    assert found[""] > 0.8 * count
    assert found.keys() <= {"", *STRICTER}
    if count == MANY:
        assert found.keys() >= STRICTER.keys(), "each difference that is listed is there"
    assert fast_path.taken > count / 40, "the fast path is in it"


def pipelined() -> bytes:
    """Requests of all kinds, one behind the other."""
    random = Random(1)
    drafts = [Draft(b"POST", b"/fast", LOOKALIKE), Draft(b"POST", b"/fast", b"two")]
    drafts += [Draft(b"POST", b"/slow", LOOKALIKE), Draft(b"POST", b"/fast", b"four")]
    for draft, frame in zip(
        drafts, [with_length, with_length, with_chunks, with_chunks], strict=True
    ):
        frame(random, draft)
    for draft in drafts[1::2]:
        with_upgrade(random, draft)
    return b"".join(draft.bytes() for draft in (*drafts, Draft(b"GET", b"/slow")))


def test_a_stream_is_read_alike_wherever_it_is_cut():
    content, fast_path = pipelined(), EchoFastPath()
    assert len(read_by_h11(content, has_end=True).requests) == 5
    protocol = guarded_protocol(FOREVER, lambda url, headers: None, fast_path)  # type: ignore[arg-type]

    async def main() -> None:
        async with serving(Echo(), protocol) as server:
            for case in cut_everywhere(content):
                assert await compared(case, server) == "", case
            byte_by_byte = Case(0, tuple(bytes([each]) for each in content))
            assert await compared(byte_by_byte, server) == ""

    uvloop.run(main())
    assert fast_path.taken > 0
