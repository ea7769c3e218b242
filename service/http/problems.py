"""Every error as RFC 9457 `application/problem+json`, in one shape, without the caller's values."""

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import Send

from service.codec.wire import Answer, Header
from service.errors import (
    InvalidRequest,
    ServiceError,
    occurrence,
    plain_problem,
    problem_types,
)
from service.metrics import Metrics
from service.ops import logs

MEDIA_TYPE = "application/problem+json"
CONTENT_TYPE: Header = (b"content-type", MEDIA_TYPE.encode())

log = logging.getLogger(__name__)


def problem_answer(error: ServiceError, request_id: str | None) -> Answer:
    """The answer to a service error."""
    headers = dict(error.headers)
    if error.retry_after_seconds is not None:
        headers["Retry-After"] = str(error.retry_after_seconds)
    return _answer(error.problem(), error.status, headers, request_id)


def plain_answer(
    status: int, request_id: str | None, headers: Mapping[str, str] | None = None
) -> Answer:
    """The answer to a plain HTTP error."""
    return _answer(plain_problem(status), status, headers or {}, request_id)


def _answer(
    problem: dict[str, Any], status: int, headers: Mapping[str, str], request_id: str | None
) -> Answer:
    """The only place where problems are encoded."""
    if request_id is not None:
        problem |= occurrence(request_id)
    content = json.dumps(problem, ensure_ascii=False).encode()
    given = tuple((name.lower().encode(), value.encode()) for name, value in headers.items())
    return Answer(content, status, CONTENT_TYPE, given)


async def send_answer(answer: Answer, send: Send) -> None:
    """Send an answer by ASGI."""
    start = {"type": "http.response.start", "status": answer.status}
    await send({**start, "headers": answer.all_headers()})
    await send({"type": "http.response.body", "body": answer.body})


def response_of(answer: Answer) -> Response:
    """An answer as FastAPI's routes and handlers return it."""
    response = Response(answer.body, answer.status)
    response.raw_headers = answer.all_headers()
    return response


class Problems:
    """Converts errors to answers and counts them."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        metrics.expect_problems(problem_types())

    def install(self, app: FastAPI) -> None:
        """Handle all errors of handlers and of the router, except crashes."""
        app.add_exception_handler(ServiceError, self._service_error)
        app.add_exception_handler(HTTPException, self._http_error)
        app.add_exception_handler(RequestValidationError, self._validation_error)

    def answer(self, error: ServiceError) -> Answer:
        """The answer to a service error."""
        self._metrics.problems.labels(error.slug).inc()
        return problem_answer(error, _request_id())

    def plain(self, status: int, headers: Mapping[str, str] | None = None) -> Answer:
        """The answer to a plain HTTP error."""
        return plain_answer(status, _request_id(), headers)

    def crash(self, error: Exception) -> Answer:
        """The answer to a bug, with the request's id only; the details are in the log."""
        details = {"action": "request_failed"}
        log.error("a request failed", extra=details, exc_info=error)
        return self.answer(ServiceError())

    async def _service_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, ServiceError)  # noqa: S101
        return response_of(self.answer(error))

    async def _http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101
        return response_of(self.plain(error.status_code, error.headers))

    async def _validation_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101
        places = [{**each, "loc": each["loc"][1:]} for each in error.errors()]
        return response_of(self.answer(refused_parameters(places)))


def refused_parameters(errors: Iterable[Mapping[str, Any]]) -> InvalidRequest:
    """Pydantic's errors of parameters as one problem; `loc` starts with their names."""
    places = [
        {"detail": f"{_rule(each)}.", "pointer": "#/" + "/".join(map(str, each["loc"]))}
        for each in errors
    ]
    return InvalidRequest(errors=places)


def _rule(error: Mapping[str, Any]) -> str:
    """The violated rule; pydantic quotes the input only in messages of type `value_error`."""
    return str(error["msg"]) if error["type"] != "value_error" else "Not a valid value"


def _request_id() -> str | None:
    found: str | None = logs.context().get("request_id")
    return found
