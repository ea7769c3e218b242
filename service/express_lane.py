"""The express lane: a plain request to a hot route passes the whole door in one step.

The layers of the door are there for what they refuse, delay or change. Of a request for a hot route
whose body is there, which no browser's page sent and for which there is room, that can only be its
key: it is asked for, counted, timed and answered here, by the layers' own methods. All other
requests pass the layers one by one.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.authorising import Guard
from service.middleware import CLOSE, Begun, RequestScope
from service.promptly import Promptly
from service.routes.hot import Answer, Header, HotRoute, HotRoutes
from service.security_headers import encoded, protected
from service.shedding import Shedding

# Extensions of ASGI. `receive` gives the body, none where it is not there yet or is to be asked for by messages.
WHOLE_BODY = "daband.whole_body"
WholeBody = Callable[[], bytes | None]
# `send` sends status, encoded headers (without the empty line) and body at once; false where that must
# be done by messages, since the caller is slow to take them, or gone.
WHOLE_ANSWER = "daband.whole_answer"
WholeAnswer = Callable[[int, bytes, bytes], bool]
NONE: Mapping[str, Any] = {}
ASKED_FOR: Mapping[str, WholeBody] = {"receive": lambda: None}
BY_MESSAGES: Mapping[str, WholeAnswer] = {"send": lambda status, head, body: False}
# What a layer has to look at: pages of other origins, compression, a body that is asked for or endless.
SPECIAL = frozenset({b"origin", b"content-encoding", b"expect", b"transfer-encoding"})


class ExpressLane:
    """Answers plain requests to hot routes; the others are for `app`, the layers."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        routes: HotRoutes,
        guard: Guard,
        requests: RequestScope,
        shedding: Shedding,
        max_body_bytes: int,
    ) -> None:
        self._app = app
        self._routes = routes
        self._guard = guard
        self._requests = requests
        self._shedding = shedding
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        route = self._routes.find(scope)
        if route is None or not self._shedding.has_room or not _is_plain(scope):
            await self._app(scope, receive, send)
            return
        content = scope.get("extensions", NONE).get(WHOLE_BODY, ASKED_FOR)["receive"]()
        if content is None:
            first = Promptly(_message(receive))
            receive = _resumed(first, receive)
            content = _whole_body(first.result) if first.is_done else None
        if content is None or len(content) > self._max_body_bytes:
            await self._app(scope, receive, send)
        else:
            await self._pass(route, scope, content, send)

    async def _pass(self, route: HotRoute, scope: Scope, content: bytes, send: Send) -> None:
        visit, begun = self._shedding.enter(), self._requests.begin(scope)
        status: int | None = None
        try:
            try:
                refusal = self._guard.admit(scope)
                if refusal is None:
                    answer = await self._routes.answer(route, scope, content)
                else:
                    answer = Answer.of(refusal)
            except Exception as error:  # noqa: BLE001 - the last one who can answer
                answer = Answer.of(self._requests.crash(error))
            status = answer.status
            await self._send(answer, scope, begun, send)
        finally:
            self._requests.end(scope, begun, status)
            self._shedding.leave(visit)

    async def _send(self, answer: Answer, scope: Scope, begun: Begun, send: Send) -> None:
        own = self._requests.headers(begun)
        send_whole = scope.get("extensions", NONE).get(WHOLE_ANSWER, BY_MESSAGES)["send"]
        is_last = CLOSE in own  # a server that is to hang up looks for that in a message
        if not is_last and send_whole(answer.status, _head(answer, own), answer.body):
            return
        headers = protected([*answer.all_headers(), *own])
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})


def _head(answer: Answer, own: list[Header]) -> bytes:
    usual = _usual_head((answer.content_type, *answer.headers))
    return b"%bcontent-length: %d\r\n%b" % (usual, len(answer.body), encoded(own))


@lru_cache(maxsize=256)
def _usual_head(headers: tuple[Header, ...]) -> bytes:
    return encoded(protected(list(headers)))


def _is_plain(scope: Scope) -> bool:
    return SPECIAL.isdisjoint(dict(scope["headers"]))


def _whole_body(message: Message) -> bytes | None:
    is_whole = message["type"] == "http.request" and not message.get("more_body", False)
    return message.get("body", b"") if is_whole else None


async def _message(receive: Receive) -> Message:
    return await receive()


def _resumed(first: Promptly[Message], receive: Receive) -> Receive:
    """A `receive` that begins with what was waited for already."""
    waited = [first]

    async def receive_next() -> Message:
        return await (waited.pop() if waited else receive())

    return receive_next
