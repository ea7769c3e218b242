"""Headers of every answer that keep browsers from doing more with it than they should."""

from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
)
UNLESS_SAID = (
    # Nothing may be loaded or run; pages that need more say so themselves.
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


class SecurityHeaders:
    """Adds them to each answer; what an answer says by itself stands."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with a send that adds the headers."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = protected(message.get("headers", ()))
            await send(message)

        await self._app(scope, receive, send_with_headers)


def encoded(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Headers as they are sent, without the empty line after the last."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])


def protected(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of an answer with those that it did not set by itself."""
    found = [*headers, *ALWAYS]
    names = [name for name, _ in headers]
    found += [each for each in UNLESS_SAID if each[0] not in names]
    return found
