"""The fast path: a plain request to a fast route is answered without ASGI.

FastAPI documents the fast routes, and nothing of it runs when they are called. A handler takes a `Call`,
whose body is read, and the query's parameters by name. It returns a coroutine or a future of an `Answer`.
ASGI calls the same handler: `FastRoutes` by the path alone, FastAPI's router on any other way in (a
mounted app, a prefix).

The middleware is there for what it refuses, delays or changes. A plain request is a POST to a fast route,
with its whole body, from no browser's page, while there is room. Only its key can be wrong, so `FastPath`
checks the key and calls the handler. It uses the middleware's own methods: same ids, times, metrics.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol
from urllib.parse import parse_qs

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError, create_model
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from service.auth.keys import Caller
from service.auth.tenants import TenantScope
from service.codec.wire import Answer, Header
from service.errors import ServiceError
from service.http.concurrency_limit import Shedding
from service.http.middleware import Begun, Guard, Limits, RequestScope
from service.http.problems import Problems, refused_parameters, response_of, send_answer
from service.ops import logs, tracing
from service.services import Services

NO_QUERY: Mapping[str, Any] = {}
MAX_CACHED_QUERY = 512


class Call(Request):
    """A request to a fast route, with its body."""

    def __init__(self, scope: Scope, content: bytes) -> None:
        # Without Starlette's own: what it sets up is for reading the body, which is done.
        self.scope = scope
        self.content = content

    @property
    def services(self) -> Services:
        """The collaborators, from the server's lifespan."""
        found: Services = self.scope["state"]["services"]
        return found

    @property
    def tenant_scope(self) -> TenantScope:
        """The experiments that the caller may know of."""
        caller: Caller = self.scope["caller"]
        return caller.tenant_scope

    def header(self, wanted: bytes) -> str | None:
        """The first header of this name, in lower case."""
        for name, value in self.scope["headers"]:
            if name == wanted:
                return str(value, "latin-1")
        return None


Handler = Callable[..., Awaitable[Answer]]


class FastRoute(APIRoute):
    """A route that decodes its own query and solves no dependencies."""

    def __init__(self, path: str, endpoint: Handler, **options: Any) -> None:
        if options.get("dependencies"):
            raise ValueError(f"{path} is a fast route: no dependency would be solved for it")
        self._handler = endpoint
        self._read_query = _query_reader(endpoint)
        super().__init__(path, endpoint, **options)

    def answer(self, scope: Scope, content: bytes) -> Awaitable[Answer]:
        """The handler's answer; raises `ServiceError`s, now or when it is awaited."""
        query = scope["query_string"]
        parameters = self._read_query(query) if query else NO_QUERY
        return self._handler(Call(scope, content), **parameters)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler for FastAPI's router."""

        async def handle(request: Request) -> Response:
            return response_of(await self.answer(request.scope, await request.body()))

        return handle


class FastRoutes:
    """Calls fast routes by their path; all other requests go to the app."""

    def __init__(self, app: ASGIApp, *, routes: Iterable[BaseRoute], problems: Problems) -> None:
        self._app = app
        self._problems = problems
        self._routes = {route.path: route for route in routes if isinstance(route, FastRoute)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        is_posted = scope["type"] == "http" and scope["method"] == "POST"
        route = self.at(scope["path"]) if is_posted else None
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        content = (await receive())["body"]  # whole: `Admission` has read it
        try:
            answer = await route.answer(scope, content)
        except ServiceError as error:
            answer = self._problems.answer(error)
        await send_answer(answer, send)

    def at(self, path: str) -> FastRoute | None:
        """The route of posts to this path."""
        return self._routes.get(path)


def _query_reader(endpoint: Handler) -> Callable[[bytes], Mapping[str, Any]]:
    """A reader of the handler's query parameters, by FastAPI's rules: unknown ones are ignored."""
    parameters = list(inspect.signature(endpoint).parameters.values())[1:]
    fields: dict[str, Any] = {each.name: (each.annotation, each.default) for each in parameters}
    model = create_model("Query", **fields)
    many = {each.name for each in parameters if "list" in str(each.annotation)}

    def read(query: bytes) -> Mapping[str, Any]:
        given = parse_qs(query.decode("latin-1"), keep_blank_values=True)
        found = {name: values if name in many else values[-1] for name, values in given.items()}
        return _validated(model, found)

    # Callers repeat few queries, and reading one is a fifth of a binary select. It holds no key.
    cached = lru_cache(maxsize=256)(read)
    return lambda query: (cached if len(query) <= MAX_CACHED_QUERY else read)(query)


def _validated(model: type[BaseModel], found: dict[str, Any]) -> Mapping[str, Any]:
    try:
        checked = model.model_validate(found)
    except ValidationError as error:
        raise refused_parameters(error.errors()) from None
    return {name: getattr(checked, name) for name in checked.model_fields_set}


# The middleware looks at these: other origins, compression, a body that is asked for or endless.
SPECIAL = frozenset({b"origin", b"content-encoding", b"expect", b"transfer-encoding"})
FastRequest = dict[str, Any]  # the ASGI scope of a request on the fast path


class Exchange(Protocol):
    """The server's side of a request: takes the answer, and runs what it takes to make it."""

    def answer(self, status: int, head: bytes, body: bytes, *, is_last: bool) -> None:
        """Send status, encoded headers (without the empty line) and body; hang up after the last."""

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it beside other requests; a server that stops waits for it."""


class FastPath:
    """Answers plain requests to fast routes."""

    def __init__(
        self,
        *,
        routes: FastRoutes,
        guard: Guard,
        requests: RequestScope,
        shedding: Shedding,
        limits: Limits,
    ) -> None:
        self.requests = requests
        self.shedding = shedding
        self._routes = routes
        self._guard = guard
        self._limits = limits

    def find(
        self, method: bytes, url: bytes, headers: Sequence[Header], state: Mapping[str, Any]
    ) -> FastRequest | None:
        """The request that has this head; none if it must pass the middleware."""
        is_open = self.shedding.has_room and not self.requests.is_last
        if method != b"POST" or not is_open or b"#" in url:
            return None
        path, _, query = url.partition(b"?")
        route = self._routes.at(path.decode("latin-1"))
        if route is None or not self._is_plain(dict(headers)):
            return None
        return {
            "type": "http",
            "method": "POST",
            "path": route.path,
            "query_string": query,
            "headers": headers,
            "state": state,
            "route": route,
        }

    def take(self, request: FastRequest, content: bytes, exchange: Exchange) -> None:
        """Answer a request whose body is complete, now or later."""
        begun = self.requests.begin(request["headers"])
        reply = _Reply(self, request["path"], begun, exchange)
        try:
            with tracing.within(begun.span):
                refusal = self._guard.admit(request)
                if refusal is not None:
                    reply.answer(refusal)
                else:
                    reply.wait(request["route"].answer(request, content))
        except Exception as error:  # noqa: BLE001 - nothing after this could answer
            reply.fail(error)
        finally:
            logs.leave(begun.token)  # the connection goes on with other requests

    def _is_plain(self, headers: Mapping[bytes, bytes]) -> bool:
        is_small = self._limits.is_small(headers.get(b"content-length", b"0"))
        return is_small and SPECIAL.isdisjoint(headers)


class _Reply:
    """The answer to a request on the fast path, sent once.

    All its methods run in the request's own context, which its log lines are of.
    """

    __slots__ = ("_begun", "_exchange", "_fast_path", "_in_flight", "_route")

    def __init__(self, fast_path: FastPath, route: str, begun: Begun, exchange: Exchange) -> None:
        self._fast_path = fast_path
        self._route = route
        self._begun = begun
        self._exchange = exchange
        self._in_flight = fast_path.shedding.begin()

    def wait(self, pending: Awaitable[Answer]) -> None:
        """Send what comes of a future or a coroutine."""
        if isinstance(pending, asyncio.Future):
            pending.add_done_callback(self._take)  # without a task: a select has one future
        else:
            self._exchange.run(self._finish(pending))

    def answer(self, answer: Answer) -> None:
        """Send this."""
        is_last = answer.closes or self._fast_path.requests.is_last
        head = answer.head(self._begun.request_id)
        try:
            self._exchange.answer(answer.status, head, answer.body, is_last=is_last)
        finally:
            self._end(answer.status)

    def fail(self, error: Exception) -> None:
        """Send the answer to a request that failed with this error."""
        self.answer(self._fast_path.requests.failure(error))

    def _take(self, future: asyncio.Future[Answer]) -> None:
        error = future.exception()
        if error is None:
            self.answer(future.result())
        elif isinstance(error, Exception):
            self.fail(error)

    async def _finish(self, work: Awaitable[Answer]) -> None:
        try:
            answer = await work
        except Exception as error:  # noqa: BLE001 - nothing after this could answer
            self.fail(error)
        except BaseException:
            self._end(None)
            raise
        else:
            self.answer(answer)

    def _end(self, status: int | None) -> None:
        self._in_flight.end()
        self._fast_path.requests.end(self._begun, self._route, "POST", status)
