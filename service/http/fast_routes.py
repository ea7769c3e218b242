"""The fast routes: FastAPI documents them, and nothing of it runs when they are called.

A handler takes a `Call`, whose body is read, and the query's parameters by name. It returns a coroutine
or a future of an `Answer`. The fast path and `FastRoutes`, which stands in front of the app, call it by
the path alone. On any other way in (a mounted app, a prefix) FastAPI's router calls the same handler.
"""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any
from urllib.parse import parse_qs

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError, create_model
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from service.auth.keys import Caller
from service.auth.tenants import TenantScope
from service.codec.wire import Answer
from service.errors import ServiceError
from service.http.problems import Problems, refused_parameters, response_of, send_answer
from service.services import Services

NO_QUERY: Mapping[str, Any] = {}


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
    """Calls fast routes without a search; all else is the app's.

    What must be known of a request before its route is called, who sends it above all, is asked
    here: `scope["route"]` is the route.
    """

    def __init__(self, app: ASGIApp, *, routes: Iterable[BaseRoute], problems: Problems) -> None:
        self._app = app
        self._problems = problems
        self._routes = {route.path: route for route in routes if isinstance(route, FastRoute)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        route = self.find(scope)
        if route is None:
            await self._app(scope, receive, send)
            return
        content = (await receive())["body"]  # whole: `Admission` has read it
        await send_answer(await self.answer(route, scope, content), send)

    def find(self, scope: Scope) -> FastRoute | None:
        """The route that a request is for; none if it is not a hot one."""
        is_posted = scope["type"] == "http" and scope["method"] == "POST"
        return self.at(scope["path"]) if is_posted else None

    def at(self, path: str) -> FastRoute | None:
        """The route of posts to this path."""
        return self._routes.get(path)

    async def answer(self, route: FastRoute, scope: Scope, content: bytes) -> Answer:
        """What a route answers, problems included."""
        scope["route"] = route
        try:
            return await route.answer(scope, content)
        except ServiceError as error:
            return self.refusal(error)

    def refusal(self, error: ServiceError) -> Answer:
        """What callers are told of an error."""
        return self._problems.answer(error)


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

    return read


def _validated(model: type[BaseModel], found: dict[str, Any]) -> Mapping[str, Any]:
    try:
        checked = model.model_validate(found)
    except ValidationError as error:
        raise refused_parameters(error.errors()) from None
    return {name: getattr(checked, name) for name in checked.model_fields_set}
