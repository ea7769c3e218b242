"""Errors in the shapes of other protocols: a problem becomes what the clients of its path expect.

The status and all other headers stay. Refusals of the protocol itself (400, 408, 431) stay problems: they
have no path.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.codec.wire import JSON, Answer
from service.errors import UnknownExperiment
from service.http.problems import CONTENT_TYPE

Problem = Mapping[str, Any]
FLAGS = "/ofrep/v1/evaluate/flags"
CODES = {UnknownExperiment.problem_type(): "FLAG_NOT_FOUND"}
# What other protocols have no place for, or a place of its own; the detail names a missing scope already.
MEMBERS = {
    "type",
    "title",
    "status",
    "detail",
    "instance",
    "request_id",
    "errors",
    "errorCode",
    "scope",
}
Dialect = Callable[[str, Problem], dict[str, Any]]


def spoken(path: str, answer: Answer) -> Answer:
    """A problem in the words of its path's protocol; every other answer as it is."""
    dialect = dialect_of(path)
    if dialect is None or answer.content_type != CONTENT_TYPE:
        return answer
    content = dialect(path, json.loads(answer.body))
    return replace(answer, body=json.dumps(content).encode(), content_type=JSON)


def dialect_of(path: str) -> Dialect | None:
    """The dialect of a path, if it has one."""
    if path == "/v2" or path.startswith("/v2/"):
        return _inference
    return _flags if path.startswith(FLAGS) else None


def _inference(_: str, problem: Problem) -> dict[str, Any]:
    """Open Inference Protocol."""
    return {"error": _text(problem)}


def _flags(path: str, problem: Problem) -> dict[str, Any]:
    """OpenFeature remote evaluation."""
    return flag_error(path.partition(f"{FLAGS}/")[2], problem)


def flag_error(key: str, problem: Problem) -> dict[str, Any]:
    """What evaluating a flag failed with; of all flags together the key is empty."""
    code = problem.get("errorCode") or CODES.get(problem["type"], "GENERAL")
    named = {"key": key} if key else {}
    return {**named, "errorCode": code, "errorDetails": _text(problem)}


def _text(problem: Problem) -> str:
    """The detail, with the places that are to blame and the facts of this occurrence."""
    places = [f"{each['pointer']}: {each['detail']}" for each in problem.get("errors", ())]
    facts = [f"{name}: {problem[name]}" for name in problem if name not in MEMBERS]
    return " ".join((problem["detail"], *places, *facts))


class Dialects:
    """Translates the problems of all layers below it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with a `send` that translates if its path has a dialect."""
        if scope["type"] == "http" and dialect_of(scope["path"]) is not None:
            send = _Translating(scope["path"], send)
        await self._app(scope, receive, send)


class _Translating:
    """A `send` that holds back the start of a problem until its body is there."""

    def __init__(self, path: str, send: Send) -> None:
        self._path = path
        self._send = send
        self._start: Message | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and CONTENT_TYPE in message["headers"]:
            self._start = message
        elif self._start is None:
            await self._send(message)
        else:
            await self._translated(self._start, message)

    async def _translated(self, start: Message, message: Message) -> None:
        answer = spoken(self._path, Answer(message["body"], content_type=CONTENT_TYPE))
        own = dict(answer.all_headers())
        kept = [each for each in start["headers"] if each[0] not in own]
        await self._send({**start, "headers": [*own.items(), *kept]})
        await self._send({**message, "body": answer.body})
