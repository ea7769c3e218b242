"""Who may come in, as plain ASGI: one look at the key, one at the table of routes.

It stands before bodies are read, so that who has no business here costs next to nothing.
"""

from collections.abc import Iterable
from typing import Protocol

from msgspec.structs import replace
from starlette.types import ASGIApp, Receive, Scope, Send

from service.auth.access import METRICS, Access, declared
from service.auth.keys import EVERYONE, Caller
from service.codec.wire import Answer
from service.errors import KeyRefused, KeyRequired, NotGranted, ServiceError
from service.http.problems import Problems, send_answer
from service.ops import logs

SCHEME = "bearer"
WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})


class Keys(Protocol):
    """Knows whose a key is."""

    def caller(self, key: str) -> Caller:
        """The caller that has this key; `KeyRefused` or `RateLimited`."""


class Guard(Protocol):
    """Decides who comes in."""

    def admit(self, scope: Scope) -> Answer | None:
        """What to refuse a request with; none when it may pass, with its caller noted."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""


class Unguarded:
    """Lets everybody in, as the unnamed tenant: for a service that only its own machine reaches."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        self.admit(scope)
        await self._app(scope, receive, send)

    def admit(self, scope: Scope) -> None:
        """Note who it is, as far as one knows."""
        scope["caller"] = EVERYONE


class Authorising:
    """Lets in who has a key that the route allows; a route without an entry in the table is shut."""

    def __init__(
        self, app: ASGIApp, *, problems: Problems, keys: Keys, is_metrics_open: bool = False
    ) -> None:
        self._app = app
        self._problems = problems
        self._keys = keys
        self._open = frozenset({METRICS}) if is_metrics_open else frozenset()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its caller, or refuse it."""
        if scope["type"] == "http" and (refusal := self.admit(scope)) is not None:
            await send_answer(refusal, send)
        else:
            await self._app(scope, receive, send)

    def admit(self, scope: Scope) -> Answer | None:
        """What to refuse it with; none when it may pass, with its caller noted."""
        methods = declared(scope["path"])
        access = (methods or {}).get("GET" if scope["method"] == "HEAD" else scope["method"])
        if access is Access.OPEN or scope["path"] in self._open:
            scope["caller"] = EVERYONE
            return None
        try:
            scope["caller"] = caller = self._keys.caller(_key(scope["headers"]))
            logs.enter(key_id=caller.key_id)  # taken back with the request's own fields
            if access is not None:
                _check(access, caller)
        except ServiceError as error:
            return self._refused(error, scope["method"])
        if methods is None:
            return self._problems.plain(404)
        if access is None:
            return self._problems.plain(405, {"Allow": ", ".join(sorted(methods))})
        return None

    def _refused(self, error: ServiceError, method: str) -> Answer:
        answer = self._problems.answer(error)
        is_stranger = isinstance(error, KeyRequired | KeyRefused)
        # What else a stranger sends is not wanted.
        return replace(answer, closes=is_stranger and method not in WITHOUT_BODY)


def _check(access: Access, caller: Caller) -> None:
    if not access.allows(caller):
        raise NotGranted(scope=access.value)


def _key(headers: Iterable[tuple[bytes, bytes]]) -> str:
    for name, value in headers:
        if name == b"authorization":
            scheme, _, key = value.decode("latin-1").partition(" ")
            if scheme.lower() != SCHEME:
                raise KeyRefused
            return key.strip()
    raise KeyRequired
