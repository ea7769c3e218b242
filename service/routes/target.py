"""The target domain: decisions of the frozen policy, and uploads of unlabeled contexts."""

from io import BytesIO
from typing import Annotated, Any

import msgspec
import numpy as np
from fastapi import APIRouter, Query, Request, Response
from starlette.requests import ClientDisconnect

from service.codec import answers, requests
from service.codec.bodies import (
    BINARY,
    STREAMED,
    MediaType,
    TargetSelectBody,
    decode,
    media_type,
    request_id_or_new,
)
from service.codec.target_contexts import binary_target_rows, target_rows
from service.codec.uploads import decoder_for
from service.codec.wire import REPLAYED, Answer, Header
from service.deciding.policies import Served
from service.deciding.target import TargetAnswer
from service.deciding.uploads import Spool
from service.errors import UploadStalled, refuse
from service.http.fast_path import Call, FastRoute
from service.records import check_identifier
from service.routes import caller_of, json_answer, services_of
from service.routes.decisions import READABLE
from service.routes.documentation import body, problems, stream

fast_router = APIRouter(prefix="/target", tags=["target"], route_class=FastRoute)
router = APIRouter(prefix="/target", tags=["target"])
TABLE: Header = (b"content-type", MediaType.NPY.value.encode())

_encode = msgspec.json.Encoder().encode

Text = Annotated[str | None, Query(description="with a binary body")]
Arms = Annotated[list[str] | None, Query(description="with a binary body: the arms of its rows")]
Floor = Annotated[float | None, Query(ge=0, le=1, description="with a binary body")]
Flag = Annotated[bool, Query(description="with a binary body")]


@fast_router.post(
    "/select",
    response_model=answers.TargetSelected,
    responses={
        200: {"content": {MediaType.NPY.value: {"schema": {"type": "string", "format": "binary"}}}},
        **problems(404, 409, has_body=True),
    },
    openapi_extra=body(requests.TargetSelectRequest, is_binary=True),
)
async def target_select(
    call: Call,
    experiment: Text = None,
    request_id: Text = None,
    confidence_floor: Floor = None,
    store: Flag = False,
    eligible_arms: Arms = None,
) -> Answer:
    """Decide for target contexts with the frozen policy; nothing is learned or explored.

    `Accept: application/x-npy` answers a table instead of JSON.
    """
    services, content = call.services, call.content
    media = media_type(call.header(b"content-type"), READABLE)
    if media in BINARY:
        name = check_identifier(experiment or "", "#/experiment")
        served = await services.policies.current(call.tenant_scope.full_name(name))
        groups = binary_target_rows(served.spec, content, media, eligible_arms)
    else:
        asked = decode(content, TargetSelectBody, media)
        name = check_identifier(asked.experiment, "#/experiment")
        served = await services.policies.current(call.tenant_scope.full_name(name))
        groups = target_rows(served.spec, asked, media)
        confidence_floor, store, request_id = asked.confidence_floor, asked.store, asked.request_id
    store_as = request_id_or_new(request_id) if store else None
    answer = await services.target_selecting.select(served, groups, confidence_floor, store_as)
    if MediaType.NPY in (call.header(b"accept") or ""):
        return _table_answer(served, answer)
    return Answer(_encode(_answer(served, answer)), headers=_headers(answer))


@router.post(
    "/contexts",
    status_code=201,
    response_model=answers.ContextsStored,
    responses={
        200: {"model": answers.ContextsStored, "description": "They were already stored"},
        **problems(404, 409, has_body=True),
    },
    openapi_extra=stream(),
)
async def upload_contexts(
    request: Request, experiment: Text = None, request_id: Text = None
) -> Response:
    """Store up to 10^6 unlabeled target contexts; all of them are stored or none."""
    services, tenant_scope = await services_of(request), (await caller_of(request)).tenant_scope
    media = media_type(request.headers.get("content-type") or "", STREAMED)
    name = check_identifier(experiment or "", "#/experiment")
    served = await services.policies.current(tenant_scope.full_name(name))
    store_as = request_id_or_new(request_id)
    with Spool(served.spec) as spool:
        await _receive(request, decoder_for(media, served.spec), spool)
        if not spool.rows:
            refuse("An upload needs at least one context.")
        stored = await services.uploading.store_spooled(served, store_as, spool)
    return json_answer(stored.answer(served.spec.name), 201 if stored.appended.created else 200)


async def _receive(request: Request, decoder: Any, spool: Spool) -> None:
    try:
        async for piece in request.stream():
            for contexts in decoder.feed(piece):
                spool.add(contexts)
    except (TimeoutError, ClientDisconnect):
        raise UploadStalled from None
    for contexts in decoder.finish():
        spool.add(contexts)


def _answer(served: Served, answer: TargetAnswer) -> dict[str, Any]:
    name = served.spec.name
    return {
        "experiment": name,
        "policy_version": served.version,
        "encoder_version": served.policy.version.encoder_version,
        "decisions": answer.decisions(),
        "stored": None if answer.stored is None else answer.stored.answer(name),
    }


def _table_answer(served: Served, answer: TargetAnswer) -> Answer:
    content = BytesIO()
    np.lib.format.write_array(content, answer.table())
    headers = (
        (b"x-policy-version", b"%d" % served.version),
        (b"x-encoder-version", b"%d" % served.policy.version.encoder_version),
        *_headers(answer),
    )
    return Answer(content.getvalue(), content_type=TABLE, headers=headers)


def _headers(answer: TargetAnswer) -> tuple[Header, ...]:
    is_replay = answer.stored is not None and not answer.stored.appended.created
    return (REPLAYED,) if is_replay else ()
