"""A service in the same process: an ASGI app is called directly, without a socket."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpx

from daband_client.async_client import AsyncClient

App = Callable[[Any, Any, Any], Awaitable[None]]


def in_process(app: App, state: Mapping[str, Any]) -> AsyncClient:
    """A client of an app whose lifespan is running and gave `state`."""

    async def call(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "state": dict(state)}, receive, send)

    return AsyncClient("http://in-process", transport=httpx.ASGITransport(call), api_key="")
