"""The app in process, with its lifespan, behind an httpx client."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import httpx
from starlette.types import Message, Receive, Scope, Send

from service.app import ServiceApp, create_app
from service.services import Services
from service.settings import Settings
from tests.support.waiting import PATIENT_SETTINGS

DOSES: dict[str, Any] = {
    "name": "doses",
    "arms": ["low", "mid", "high"],
    "context": {"kind": "shared", "shape": [4]},
    "method": "daband",
    "seed": 7,
    "config": {
        "episode_length": 16,
        "alpha": 0.05,
        "epsilon": 0.05,
        "latent_size": 4,
        "hidden_sizes": [8],
        "steps_per_episode": 2,
        "batch_size": 8,
    },
}
# The gate would judge by five rounds, and refuse one encoder in three for bad luck.
TAUGHT: dict[str, Any] = {
    **DOSES,
    "config": {**DOSES["config"], "gate_margin": 1.0, "gate_rank": 1.0},
}
OFFERS: dict[str, Any] = {**DOSES, "name": "offers", "context": {"kind": "per_arm", "shape": [4]}}
CONTEXT = [0.1, -0.2, 0.3, 0.4]
OTHER_CONTEXT = [1.0, 0.0, -1.0, 0.5]


class Api:
    """A running app: `http` asks it, `services` are what its routes work with."""

    def __init__(self, app: ServiceApp, services: Services, http: httpx.AsyncClient) -> None:
        self.app = app
        self.services = services
        self.http = http

    async def select(self, request_id: str | None = None, **fields: Any) -> httpx.Response:
        body = {"experiment": "doses", "source": {"context": CONTEXT}, **fields}
        if request_id is not None:
            body["request_id"] = request_id
        return await self.http.post("/select", json=body)

    async def reward(self, decision_id: str, value: Any = 1.0) -> httpx.Response:
        body = {"decision_id": decision_id, "reward": value}
        return await self.http.post("/reward", json=body)

    async def decide(self, **fields: Any) -> str:
        """The id of a new source decision."""
        return str((await self.select(**fields)).json()["source"]["decision_id"])

    async def last_offset(self, experiment: str = "doses") -> int:
        return (await self.services.experiments.get(experiment)).head_offset


class Exchange:
    """The server's side of a request on the fast path; `answered` is what it is answered."""

    def __init__(self) -> None:
        self.answered: asyncio.Future[tuple[int, bytes, bytes]] = asyncio.Future()
        self.is_last = False
        self.tasks: list[asyncio.Task[None]] = []

    def answer(self, status: int, head: bytes, body: bytes, *, is_last: bool) -> None:
        self.is_last = is_last
        self.answered.set_result((status, head, body))

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.create_task(work))

    async def tell(self, send: Send) -> None:
        """The answer as messages."""
        status, head, body = await self.answered
        lines = head.removesuffix(b"\r\n").split(b"\r\n")
        headers = [tuple(line.split(b": ", 1)) for line in lines]
        if self.is_last:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def asgi(app: ServiceApp, services: Services) -> Any:
    """The app as our server calls it: plain requests to fast routes take the fast path."""
    layers = behind_layers(app, services)

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        url = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        method, headers, state = scope["method"].encode(), scope["headers"], {"services": services}
        request = app.fast_path.find(method, url, headers, state)
        if request is None:
            await layers(scope, receive, send)
            return
        message = await (await whole(receive))()
        exchange = Exchange()
        app.fast_path.take(request, message["body"], exchange)
        await exchange.tell(send)

    return call


def behind_layers(app: ServiceApp, services: Services) -> Any:
    """The app as any server would call it: with the lifespan's state in every scope."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        if b"content-length" in dict(scope["headers"]):
            receive = await whole(receive)
        await app({**scope, "state": {"services": services}}, receive, send)

    return call


async def whole(receive: Receive) -> Receive:
    """A `receive` that gives a body in one message, as uvicorn does; httpx would need two."""
    messages = [await receive()]
    while messages[-1].get("more_body", False):
        messages.append(await receive())
    if messages[-1]["type"] == "http.request":
        body = b"".join(message.get("body", b"") for message in messages)
        messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_next() -> Message:
        return messages.pop(0) if messages else await receive()

    return receive_next


@asynccontextmanager
async def running_api(database_url: str, **settings: Any) -> AsyncIterator[Api]:
    """The app on a database, with the trainer left out unless asked for, and no process for it."""
    given: dict[str, Any] = {"database_url": database_url, "trainer_inside": False}
    given |= {"training": "thread", **PATIENT_SETTINGS, **settings}
    app = create_app(Settings(**given))
    async with app.router.lifespan_context(app) as state:
        assert state is not None
        services: Services = state["services"]
        transport = httpx.ASGITransport(asgi(app, services))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            yield Api(app, services, http)
