"""The target domain: decisions of the frozen policy, and uploads of unlabeled contexts."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from io import BytesIO
from tempfile import TemporaryFile
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response
from numpy.lib import format as npy
from starlette.requests import ClientDisconnect

from model import Floats
from service.codec import answers, requests
from service.codec.bodies import (
    BINARY,
    FILES,
    STREAMED,
    MediaType,
    TargetSelectBody,
    decode,
    media_type,
    request_id_or_new,
)
from service.codec.contexts import image_schema
from service.codec.target_contexts import binary_target_rows, target_rows
from service.codec.uploads import ContextDecoder, decoder_for, zipped_contexts
from service.codec.wire import REPLAYED, Answer, Header
from service.deciding.policies import Served
from service.deciding.target import TargetAnswer, table_type
from service.deciding.uploads import Spool
from service.errors import UploadStalled, refuse
from service.experiment_spec import ExperimentSpec
from service.http.fast_path import Call, FastRoute
from service.images.decoding import MAX_REQUEST_PIXELS, MAX_UPLOAD_PIXELS
from service.records import check_identifier
from service.routes import apart, beside_requests, caller_of, json_answer, received, services_of
from service.routes.decisions import READABLE, Arms, Text
from service.routes.documentation import body, problems, stream

fast_router = APIRouter(prefix="/target", tags=["target"], route_class=FastRoute)
router = APIRouter(prefix="/target", tags=["target"])
TABLE: Header = (b"content-type", MediaType.NPY.value.encode())


Floor = Annotated[float | None, Query(ge=0, le=1, description="with a binary body")]
Flag = Annotated[bool, Query(description="with a binary body")]


@fast_router.post(
    "/select",
    response_model=answers.TargetSelected,
    responses={
        200: {"content": {MediaType.NPY.value: {"schema": {"type": "string", "format": "binary"}}}},
        **problems(404, 409, has_body=True),
    },
    openapi_extra=body(requests.TargetSelectRequest, binary=BINARY),
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
    asked = None if media in BINARY else decode(content, TargetSelectBody, media)
    if asked is not None:
        experiment, request_id = asked.experiment, asked.request_id
        confidence_floor, store = asked.confidence_floor, asked.store
    name = check_identifier(experiment or "", "#/experiment")
    served = await services.policies.current(call.tenant_scope.full_name(name))
    spec = served.spec.within(MAX_REQUEST_PIXELS)
    if asked is None:
        rows = partial(binary_target_rows, spec, content, media, eligible_arms)
    else:
        rows = partial(target_rows, spec, asked, media)
    groups = await beside_requests(spec, rows, len(content))
    store_as = request_id_or_new(request_id) if store else None
    is_table = MediaType.NPY in (call.header(b"accept") or "")
    encode = _table_parts if is_table else TargetAnswer.json_parts
    answer, parts = await services.target_selecting.select(
        served, groups, confidence_floor, store_as, encode
    )
    pieces = parts if is_table else _json_pieces(served, answer, parts)
    body = await services.long_work.joined(pieces)
    if not is_table:
        return Answer(body, headers=_headers(answer))
    versions = (
        (b"x-policy-version", b"%d" % served.version),
        (b"x-encoder-version", b"%d" % served.policy.version.encoder_version),
    )
    return Answer(body, content_type=TABLE, headers=(*versions, *_headers(answer)))


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
    header = request.headers.get("content-type") or ""
    media = media_type(header, STREAMED)
    name = check_identifier(experiment or "", "#/experiment")
    served = await services.policies.current(tenant_scope.full_name(name))
    store_as = request_id_or_new(request_id)
    if media in FILES:
        image_schema(served.spec)
    spec = served.spec.within(MAX_UPLOAD_PIXELS)
    with Spool(spec) as spool:
        if media is MediaType.ZIP:
            await _receive_zip(request, spec, spool)
        else:
            await _receive(request, decoder_for(media, spec, header), spec, spool)
        if not spool.rows:
            refuse("An upload needs at least one context.")
        stored = await services.uploading.store_spooled(served, store_as, spool)
    return json_answer(stored.answer(served.spec.name), 201 if stored.appended.created else 200)


async def _receive(
    request: Request, decoder: ContextDecoder, spec: ExperimentSpec, spool: Spool
) -> None:
    try:
        async for piece in request.stream():
            await apart(spec, partial(_fill, spool, decoder.feed(piece)))
    except (TimeoutError, ClientDisconnect):
        raise UploadStalled from None
    await apart(spec, lambda: _fill(spool, decoder.finish()))


async def _receive_zip(request: Request, spec: ExperimentSpec, spool: Spool) -> None:
    with TemporaryFile() as file:
        await received(request, file)
        await apart(spec, lambda: _fill(spool, zipped_contexts(spec, file)))


def _fill(spool: Spool, decoded: Iterable[Floats]) -> None:
    for contexts in decoded:
        spool.add(contexts)


def _json_pieces(served: Served, answer: TargetAnswer, parts: Sequence[bytes]) -> list[bytes]:
    """The pieces of the answer as JSON, of which the parts are the decisions."""
    name = served.spec.name
    head = {
        "experiment": name,
        "policy_version": served.version,
        "encoder_version": served.policy.version.encoder_version,
    }
    stored = None if answer.stored is None else answer.stored.answer(name)
    listed = [piece for part in parts for piece in (b",", part)][1:]
    tail = (b'],"stored":', msgspec.json.encode(stored), b"}")
    return [msgspec.json.encode(head)[:-1], b',"decisions":[', *listed, *tail]


def _table_parts(answer: TargetAnswer) -> Iterator[bytes]:
    """An npy file in pieces."""
    head = BytesIO()
    count, kind = sum(len(group.rows) for group in answer.groups), table_type(len(answer.spec.arms))
    described = {"descr": npy.dtype_to_descr(kind), "fortran_order": False, "shape": (count,)}
    for place, part in enumerate(answer.parts()):
        table = part.table()
        if not place:
            npy.write_array_header_1_0(head, described)
            yield head.getvalue()
        yield table.tobytes()


def _headers(answer: TargetAnswer) -> tuple[Header, ...]:
    is_replay = answer.stored is not None and not answer.stored.appended.created
    return (REPLAYED,) if is_replay else ()
