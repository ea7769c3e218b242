"""Problems of the console as pages: refusals and errors of every layer, and the way to the login."""

import json
from typing import Any
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.auth.access import CONSOLE, is_console
from service.console.rendering import html, is_htmx

LOGIN = f"{CONSOLE}/login"
PROBLEM = "application/problem+json"


class ProblemPages:
    """Shows what the API answers as a problem as a page, on the console's paths alone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with a `send` that exchanges problems for pages."""
        if scope["type"] == "http" and is_console(scope["path"]):
            send = _Exchanging(scope, receive, send)
        await self._app(scope, receive, send)


class _Exchanging:
    """A `send` that holds a problem back until it is whole."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._start: Message | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_problem(message):
            self._start = message
        elif self._start is None:
            await self._send(message)
        else:
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._answer(self._start)

    async def _answer(self, start: Message) -> None:
        response = problem_page(self._scope, json.loads(self._body))
        kept = MutableHeaders(raw=list(start["headers"]))
        for name in ("retry-after", "allow", "x-request-id", "connection"):
            if name in kept:
                response.headers[name] = kept[name]
        await response(self._scope, self._receive, self._send)


def _is_problem(message: Message) -> bool:
    return MutableHeaders(raw=message["headers"]).get("content-type") == PROBLEM


def problem_page(scope: Scope, problem: dict[str, Any]) -> Response:
    """The page of a problem; without a session it is the login."""
    headers, status = Headers(scope=scope), int(problem["status"])
    if status == 401:
        return _login(scope, headers)
    caller = scope.get("caller")
    template = "problem_part.html" if is_htmx(headers) else "problem.html"
    return html(template, status, caller=caller, path=scope["path"], problem=problem)


def _login(scope: Scope, headers: Headers) -> Response:
    if is_htmx(headers):
        return Response(status_code=401, headers={"HX-Redirect": LOGIN})
    is_get = scope["method"] in ("GET", "HEAD")
    place = f"{LOGIN}?next={quote(scope['path'], safe='/')}" if is_get else LOGIN
    return RedirectResponse(place, 303)
