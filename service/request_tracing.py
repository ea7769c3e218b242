"""A span for every request, as plain ASGI; only there when traces are on."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import logs, tracing


class RequestTracing:
    """Opens a request's span inside its scope, where its id is known."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on within its span, named by its route in the end."""
        if scope["type"] != "http" or not tracing.is_on():
            await self._app(scope, receive, send)
            return
        status = 500  # of a request that crashes, as its scope answers it

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with tracing.request_span(_text(scope), logs.context()["request_id"]) as span:
            # Taken back by the request's scope, whose last lines are to have it, too.
            logs.enter(trace_id=tracing.trace_id(span))
            try:
                await self._app(scope, receive, noting)
            finally:
                route = getattr(scope.get("route"), "path", "unmatched")
                tracing.end_request(span, scope["method"], route, status)


def _text(scope: Scope) -> dict[str, str]:
    """The headers as OpenTelemetry reads them."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
