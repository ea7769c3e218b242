"""An app and a caller for tests of plain ASGI middleware, without a server."""

import asyncio
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.ops import logs


class Inner:
    """An app that answers with the length of its body, once `gate` is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.bodies: list[bytes] = []
        self.contexts: list[dict[str, Any]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        self.bodies.append(message.get("body", b""))
        self.contexts.append(dict(logs.context()))
        await self.gate.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})


class Caller:
    """Sends a request in parts and remembers the answer."""

    def __init__(self, *parts: bytes, is_complete: bool = True, **headers: str) -> None:
        self._messages: list[Message] = [
            {"type": "http.request", "body": part, "more_body": True} for part in parts
        ]
        if is_complete:
            self._messages.append({"type": "http.request", "body": b"", "more_body": False})
        self._headers = [
            (name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()
        ]
        self.sent: list[Message] = []
        self.taken = 0
        self.has_left = False

    async def ask(self, app: ASGIApp, path: str = "/select", method: str = "POST") -> int | None:
        scope = {"type": "http", "method": method, "path": path, "headers": self._headers}
        await app(scope, self._receive, self._send)
        return self.sent[0]["status"] if self.sent else None

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    async def _receive(self) -> Message:
        if self._messages:
            self.taken += 1
            return self._messages.pop(0)
        if self.has_left:
            return {"type": "http.disconnect"}
        await asyncio.get_running_loop().create_future()
        raise AssertionError("unreachable")

    async def _send(self, message: Message) -> None:
        self.sent.append(message)
