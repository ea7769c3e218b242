"""The page `/docs`, and the parts of the OpenAPI description that FastAPI does not generate."""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.staticfiles import StaticFiles

from service.auth.access import ROUTES, Access
from service.codec import answers, requests
from service.codec.bodies import STREAMED, STRUCTURED, MediaType
from service.codec.protocols import schemas
from service.http.problems import MEDIA_TYPE

PAGE = "/docs"
ASSETS = "/docs/assets"
BINARY = {"schema": {"type": "string", "format": "binary"}}
REFERENCE = "#/components/schemas/{model}"
BODIES: tuple[type[BaseModel], ...] = (
    requests.ExperimentRequest,
    requests.StatusRequest,
    requests.SelectRequest,
    requests.SelectBatchRequest,
    requests.RewardRequest,
    requests.TargetSelectRequest,
    requests.NearestRequest,
    requests.RewardBatchRequest,
    requests.AuditRequest,
    requests.PhaseRequest,
    answers.EvaluationRequest,
    answers.CancelRequest,
    answers.Problem,
    schemas.InferRequest,
    schemas.FlagEvaluationRequest,
)
MEANINGS: Mapping[int, str] = {
    400: "The evaluation cannot be made; `errorCode` says why",
    401: "The key is missing or invalid",
    403: "The key does not allow this, or target rewards are closed",
    404: "Not found",
    408: "The body did not arrive in time",
    409: "The request conflicts with the present state",
    413: "The body is too large",
    415: "The media type or encoding is not supported",
    422: "The request does not have the expected shape",
    429: "The key has sent too many requests; `Retry-After` says when to retry",
    500: "An internal error; the log has details under the request's id",
    503: "Temporarily unavailable; `Retry-After` says when to retry",
}
WITH_BODY = (408, 413, 415, 422)
WITH_KEY = (401, 403, 429)
KEY_SCHEME = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "daband_<id>_<secret>",
    "description": "An API key: `daband keys create`.",
}

Responses = dict[int | str, dict[str, Any]]


def problems(*statuses: int, has_body: bool = False) -> Responses:
    """The problems that a route may answer, including those of every route."""
    return {status: _problem(status) for status in _statuses(statuses, has_body=has_body)}


def errors_as(kind: type[BaseModel], *statuses: int, has_body: bool = False) -> Responses:
    """The same of a route whose protocol has a shape of its own for errors."""
    every = (*_statuses(statuses, has_body=has_body), *WITH_KEY)
    return {status: {"model": kind, "description": MEANINGS[status]} for status in sorted({*every})}


def _statuses(own: tuple[int, ...], *, has_body: bool) -> list[int]:
    return sorted({*own, 422, 500, 503, *(WITH_BODY if has_body else ())})


def _problem(status: int) -> dict[str, Any]:
    content = {MEDIA_TYPE: {"schema": {"$ref": REFERENCE.format(model="Problem")}}}
    return {"description": MEANINGS[status], "content": content}


def body(
    kind: type[BaseModel],
    *,
    is_required: bool = True,
    structured: Iterable[MediaType] = STRUCTURED,
    binary: Iterable[MediaType] = (),
) -> Any:
    """The body of a route whose handler decodes it."""
    described = {"schema": {"$ref": REFERENCE.format(model=kind.__name__)}}
    content: dict[str, Any] = {media.value: described for media in structured}
    if examples := kind.model_json_schema().get("examples"):
        content[MediaType.JSON.value] = {**described, "example": examples[0]}
    content |= {media.value: BINARY for media in binary}
    return {"requestBody": {"required": is_required, "content": content}}


def stream(accepted: Iterable[MediaType] = STREAMED) -> Any:
    """The body of a route that streams it."""
    return {"requestBody": {"required": True, "content": {each.value: BINARY for each in accepted}}}


def describe(app: FastAPI, *, needs_keys: bool) -> dict[str, Any]:
    """The OpenAPI description of the app, made once."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
        )
        _, definitions = models_json_schema(
            [(kind, "validation") for kind in BODIES], ref_template=REFERENCE
        )
        found = made.setdefault("components", {}).setdefault("schemas", {})
        for name, schema in definitions["$defs"].items():
            found.setdefault(name, schema)
        _describe_access(made, needs_keys=needs_keys)
        app.openapi_schema = made
    return app.openapi_schema


def _describe_access(made: dict[str, Any], *, needs_keys: bool) -> None:
    """Add the access rule of each route, and the key if the service needs one."""
    if needs_keys:
        made["components"]["securitySchemes"] = {"key": KEY_SCHEME}
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            access = ROUTES.get(path, {}).get(method.upper())
            if access is None or access is Access.OPEN:
                continue
            if needs_keys:
                operation["security"] = [{"key": []}]
            operation["x-access"] = access.value
            for status in WITH_KEY:
                operation["responses"].setdefault(str(status), _problem(status))


def bytes_answer(description: str) -> Responses:
    """The documentation of a binary answer."""
    return {200: {"description": description, "content": {MediaType.BYTES.value: BINARY}}}


def add_docs_page(app: FastAPI) -> None:
    """Serve Swagger UI for the OpenAPI description; it works without internet access."""
    app.mount(ASSETS, StaticFiles(directory=str(files("fastapi_swagger") / "resources")))

    page = bytes(
        get_swagger_ui_html(
            openapi_url=app.openapi_url or "",
            title=app.title,
            swagger_js_url=f"{ASSETS}/swagger-ui-bundle.js",
            swagger_css_url=f"{ASSETS}/swagger-ui.css",
            swagger_favicon_url=f"{ASSETS}/favicon-32x32.png",
        ).body
    )
    headers = {"Content-Security-Policy": _policy(page)}

    @app.get(PAGE, include_in_schema=False)
    async def docs_page() -> Response:
        return Response(page, headers=headers, media_type="text/html")


def _policy(page: bytes) -> str:
    """The content security policy: resources of this process, and the page's own inline script."""
    inside = re.findall(rb"<script>(.*?)</script>", page, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(each).digest()).decode() for each in inside]
    scripts = " ".join(f"'sha256-{each}'" for each in hashes)
    return (
        f"default-src 'none'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
