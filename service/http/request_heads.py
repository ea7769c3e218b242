"""Rules for request heads that the parser does not know, and heads without an upgrade."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from http import HTTPStatus

import httptools

Header = tuple[bytes, bytes]
VERSIONS = frozenset({"1.0", "1.1"})
ONCE = frozenset({b"host", b"transfer-encoding"})
# uri-host [ ":" port ] of RFC 3986; empty where the target has no authority.
HOST = re.compile(rb"(?:\[[0-9A-Za-z:.%~_-]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(?::[0-9]*)?")


class BadHead(Exception):  # noqa: N818 - it says what is wrong
    """A request head that is refused with a status, after which the connection is closed."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


def checked_fields(version: str, headers: Sequence[Header]) -> dict[bytes, bytes]:
    """The headers by name; raises `BadHead` unless version, Host and coding are as RFC 9112 asks."""
    if version not in VERSIONS:
        raise BadHead(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
    fields = dict(headers)
    host = fields.get(b"host")
    is_valid = version == "1.0" if host is None else HOST.fullmatch(host) is not None
    if not is_valid:
        raise BadHead(HTTPStatus.BAD_REQUEST)
    if fields.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
        raise BadHead(HTTPStatus.NOT_IMPLEMENTED)
    if len(fields) < len(headers) and not ONCE.isdisjoint(_repeated(headers)):
        raise BadHead(HTTPStatus.BAD_REQUEST)
    return fields


def check_target(url: bytes) -> None:
    """Raise `BadHead` for a target that an app cannot be asked for."""
    if url.startswith(b"/"):
        return  # the parser has read it as a path
    try:
        path = httptools.parse_url(url).path
    except httptools.HttpParserInvalidURLError:
        path = None
    if path is None:
        raise BadHead(HTTPStatus.BAD_REQUEST)


def expects_continue(version: str, fields: Mapping[bytes, bytes]) -> bool:
    """Whether the client waits for `100 Continue`; one that speaks HTTP/1.0 never does."""
    return fields.get(b"expect", b"").lower() == b"100-continue" and version == "1.1"


def head_without_upgrade(
    method: bytes, url: bytes, version: str, headers: Sequence[Header]
) -> bytes:
    """The same head as bytes, without its Upgrade header."""
    lines = [b"%b %b HTTP/%b" % (method, url, version.encode())]
    lines += [b"%b: %b" % each for each in headers if each[0] != b"upgrade"]
    return b"\r\n".join([*lines, b"", b""])


def _repeated(headers: Sequence[Header]) -> list[bytes]:
    counts = Counter(name for name, _ in headers)
    return [name for name, count in counts.items() if count > 1]
