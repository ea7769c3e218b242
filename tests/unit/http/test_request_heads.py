"""Request heads that the parser takes and RFC 9112 does not."""

from http import HTTPStatus

import httptools
import pytest

from service.http.rfc9112 import (
    BadHead,
    check_target,
    checked_fields,
    expects_continue,
    head_without_upgrade,
)

HOST = (b"host", b"here")


def status_of(
    *headers: tuple[bytes, bytes], version: str = "1.1", url: bytes = b"/select"
) -> HTTPStatus | None:
    try:
        check_target(url)
        checked_fields(version, headers)
    except BadHead as refused:
        return refused.status
    return None


@pytest.mark.parametrize(
    "host",
    [b"", b"here", b"here:", b"here:80", b"10.0.0.1:8000", b"[::1]:8000", b"[::1]", b"a.b-c_d~e"],
)
def test_a_host_is_a_name_or_an_address_with_or_without_a_port(host: bytes):
    assert status_of((b"host", host)) is None


@pytest.mark.parametrize(
    "host",
    [
        b"a b",
        b"a/b",
        b"user@here",
        b"a,b:c",
        b"[::1",
        b"::1",
        b"here:port",
        b"a:1:2",
        b"\xff",
        b"a#b",
    ],
)
def test_any_other_host_is_refused(host: bytes):
    assert status_of((b"host", host)) == 400


def test_http_1_1_asks_for_one_host():
    assert status_of() == 400
    assert status_of(HOST, HOST) == 400
    assert status_of(HOST, (b"host", b"there")) == 400
    assert status_of(HOST) is None


def test_http_1_0_asks_for_one_host_at_most():
    assert status_of(version="1.0") is None
    assert status_of(HOST, version="1.0") is None
    assert status_of(HOST, HOST, version="1.0") == 400


@pytest.mark.parametrize("version", ["0.9", "2.0"])
def test_other_versions_are_not_spoken(version: str):
    assert status_of(HOST, version=version) == 505


@pytest.mark.parametrize("coding", [b"gzip, chunked", b"gzip", b"identity", b"chunked, chunked"])
def test_bodies_are_chunked_and_nothing_else(coding: bytes):
    assert status_of(HOST, (b"transfer-encoding", coding)) == 501
    assert status_of(HOST, (b"transfer-encoding", b"Chunked")) is None


def test_two_transfer_encodings_are_refused():
    gzip, chunked = (b"transfer-encoding", b"gzip"), (b"transfer-encoding", b"chunked")
    assert status_of(HOST, gzip, chunked) == 400
    assert status_of(HOST, chunked, gzip) == 501


@pytest.mark.parametrize("url", [b"here:443", b"http://here", b"here"])
def test_a_target_without_a_path_is_refused(url: bytes):
    assert status_of(HOST, url=url) == 400
    assert status_of(HOST, url=b"http://here/") is None
    assert status_of(HOST, url=b"*") is None


def test_only_http_1_1_waits_for_a_continue():
    fields = {b"host": b"here", b"expect": b"100-Continue"}
    assert expects_continue("1.1", fields)
    assert not expects_continue("1.0", fields)
    assert not expects_continue("1.1", {b"expect": b"something"})


def test_other_headers_may_be_repeated():
    accepted = (b"accept", b"*/*")
    assert status_of(HOST, accepted, accepted) is None


class Head:
    """Remembers what a parser reads."""

    def __init__(self, content: bytes) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.parser = httptools.HttpRequestParser(self)
        self.parser.feed_data(content)

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))


def test_a_head_without_its_upgrade_is_the_same_otherwise():
    headers = [HOST, (b"upgrade", b"h2c"), (b"connection", b"Upgrade"), (b"x-text", b"a\xffb")]
    read = Head(head_without_upgrade(b"POST", b"/select?a=b", "1.1", headers))
    assert (read.parser.get_method(), read.url) == (b"POST", b"/select?a=b")
    assert read.parser.get_http_version() == "1.1"
    assert read.headers == [HOST, (b"connection", b"Upgrade"), (b"x-text", b"a\xffb")]
