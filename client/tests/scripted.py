"""A service with scripted answers, for tests without a server."""

from typing import Any

import httpx
import msgspec

Step = httpx.Response | Exception


def problem(status: int, slug: str, **headers: str) -> httpx.Response:
    body = {"type": f"/problems/{slug}", "status": status, "detail": "No."}
    return httpx.Response(status, json=body, headers=headers)


class Script(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Gives scripted answers, one a request."""

    def __init__(self, *steps: Step) -> None:
        self._steps = list(steps)
        self.requests: list[httpx.Request] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        step = self._steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return self.handle_request(request)

    def bodies(self) -> list[Any]:
        return [msgspec.msgpack.decode(each.content) for each in self.requests]
