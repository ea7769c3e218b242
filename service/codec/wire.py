"""Encoded HTTP answers, and the ids of requests."""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from service.codec.bodies import MediaType
from service.records import uuid7

Header = tuple[bytes, bytes]
JSON: Header = (b"content-type", MediaType.JSON.value.encode())
CLOSE: Header = (b"connection", b"close")
REPLAYED: Header = (b"idempotent-replayed", b"true")

# Security headers of every answer, and those that an answer may override.
ALWAYS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)
OVERRIDABLE: tuple[Header, ...] = (
    # Nothing may be loaded or run; pages that need more set their own policy.
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
    # A form of a page with this policy has no usable Origin: the console sets its own.
    (b"referrer-policy", b"no-referrer"),
)

_VALID_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")


def request_id_of(headers: Iterable[Header]) -> str:
    """The caller's `X-Request-ID` if it is valid, else a new id."""
    for name, value in headers:
        if name == b"x-request-id" and _VALID_ID.fullmatch(value):
            return value.decode()
    return uuid7()


def encoded(headers: Iterable[Header]) -> bytes:
    """Encoded headers, without the empty line after the last."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])


def protected(headers: Sequence[Header]) -> list[Header]:
    """The headers of an answer, with the security headers that it did not set itself."""
    names = [name for name, _ in headers]
    return [*headers, *ALWAYS, *(each for each in OVERRIDABLE if each[0] not in names)]


class Answer(Struct, frozen=True, gc=False):
    """An encoded answer; `closes` means that its connection is closed after it."""

    body: bytes
    status: int = 200
    content_type: Header = JSON
    headers: tuple[Header, ...] = ()
    closes: bool = False

    def all_headers(self) -> list[Header]:
        """The headers for a server that encodes them."""
        length = (b"content-length", b"%d" % len(self.body))
        return [self.content_type, length, *self.headers, *((CLOSE,) if self.closes else ())]

    def head(self, request_id: str) -> bytes:
        """The encoded headers, security headers included, without `connection`."""
        secured = encoded(protected(self.headers)) if self.headers else _SECURITY
        content_type, length = self.content_type[1], len(self.body)
        return b"content-type: %b\r\n%bcontent-length: %d\r\nx-request-id: %b\r\n" % (
            *(content_type, secured, length),
            request_id.encode(),
        )


_SECURITY = encoded(protected(()))
