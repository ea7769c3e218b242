"""Security headers and CORS: pages of other origins may call only if their origin is allowed.

Without keys, any page in a user's browser could send requests to the service. Such a page cannot read
the answers, but it could change state, so its unsafe requests are refused here.
"""

from collections.abc import Collection

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.codec.wire import protected
from service.errors import OriginRefused
from service.http.problems import Problems, send_answer

HARMLESS = frozenset({"GET", "HEAD", "OPTIONS"})
PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST, PATCH",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, If-None-Match, X-Request-ID",
    "Access-Control-Max-Age": "600",
}
EXPOSED = (
    "X-Request-ID, Retry-After, Idempotent-Replayed, X-Policy-Version, X-Encoder-Version, "
    "X-Policy-Manifest, ETag"
)


class CrossOrigin:
    """Handles requests with an `Origin` header; all others pass unchanged."""

    def __init__(
        self, app: ASGIApp, *, problems: Problems, allowed: Collection[str], is_unguarded: bool
    ) -> None:
        self._app = app
        self._problems = problems
        self._allowed = frozenset(allowed)
        self._is_unguarded = is_unguarded

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, answer its preflight, or refuse it."""
        headers = dict(scope["headers"]) if scope["type"] == "http" else {}
        if b"origin" not in headers:
            await self._app(scope, receive, send)
            return
        origin = headers[b"origin"].decode("latin-1")
        if origin in self._allowed:
            is_preflight = b"access-control-request-method" in headers
            app = Response(status_code=204, headers=PREFLIGHT) if is_preflight else self._app
            await app(scope, receive, _sharing(send, origin))
        elif self._is_unguarded and scope["method"] not in HARMLESS and is_foreign(headers):
            await send_answer(self._problems.answer(OriginRefused()), send)
        else:
            await self._app(scope, receive, send)


def is_foreign(headers: dict[bytes, bytes]) -> bool:
    """Whether the page is from another host than the service; schemes may differ behind a TLS proxy."""
    authority = headers.get(b"origin", b"").partition(b"://")[2]
    return not authority or authority != headers.get(b"host")


def _sharing(send: Send, origin: str) -> Send:
    async def send_shared(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["Access-Control-Allow-Origin"] = origin
            headers["Access-Control-Expose-Headers"] = EXPOSED
            headers["Cross-Origin-Resource-Policy"] = "cross-origin"
            headers.add_vary_header("Origin")
        await send(message)

    return send_shared


class SecurityHeaders:
    """Adds security headers to each answer, unless the answer sets them itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with a `send` that adds the headers."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = protected(message.get("headers", ()))
            await send(message)

        await self._app(scope, receive, send_with_headers)
