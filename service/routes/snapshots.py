"""Snapshots: list, roll back to one, download one."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from service import request_schemas, schemas
from service.bodies import AuditBody, MediaType
from service.errors import ServiceError
from service.invalid import check_identifier
from service.records import EventKind, NewEvent, SnapshotRecord, uuid7
from service.routes import NameDep, ServicesDep, body_of, json_answer
from service.routes.documentation import body, bytes_answer, problems

MAX_VERSION = 2**63 - 1
MANIFEST_HEADER = "X-Policy-Manifest"

router = APIRouter(prefix="/experiments/{name}/snapshots", tags=["snapshots"])

Version = Annotated[int, Path(ge=1, le=MAX_VERSION)]
Limit = Annotated[int, Query(ge=1, le=1000)]


@router.get("", response_model=schemas.SnapshotList, responses=problems(404))
async def list_snapshots(name: NameDep, services: ServicesDep, limit: Limit = 100) -> Response:
    """The snapshots that are kept, the newest first."""
    experiment = await services.experiments.get(name)
    found = await services.snapshots.list(experiment.experiment_id, limit)
    return json_answer({"experiment": name, "snapshots": [_answer(each) for each in found]})


@router.post(
    "/{version}/restore",
    status_code=202,
    response_model=schemas.Restored,
    responses=problems(404, 409, has_body=True),
    openapi_extra=body(request_schemas.AuditRequest, is_required=False),
)
async def restore_snapshot(
    name: NameDep, version: Version, request: Request, services: ServicesDep
) -> Response:
    """Roll back to a version: written to the log now, carried out when the trainer gets there."""
    has_body = bool(await request.body())
    told = await body_of(request, AuditBody) if has_body else AuditBody()
    request_id = uuid7() if told.request_id is None else told.request_id
    check_identifier(request_id, "#/request_id")
    experiment = await services.experiments.get(name)
    found = await services.snapshots.get(experiment.experiment_id, version)
    # The trainer needs it later, and so does every replay of the log: it is kept for ever.
    await services.snapshots.pin(experiment.experiment_id, version)
    event = NewEvent(
        experiment.experiment_id,
        EventKind.RESTORE,
        f"{experiment.experiment_id}:{request_id}",
        payload=json.dumps({"version": version, "sha256": found.record.sha256}).encode(),
        request_hash=str(version),
    )
    # Replay needs the version for ever once the log speaks of it.
    await services.snapshots.pin(experiment.experiment_id, version)
    (appended,) = await services.event_log.append([event])
    services.bus.wake(name)
    status = "created" if appended.created else "already_recorded"
    offset = appended.event.offset
    answer = {"experiment": name, "version": version, "offset": offset, "status": status}
    return json_answer(answer, 202)


@router.get(
    "/{version}/policy",
    response_class=Response,
    responses={**bytes_answer("The snapshot; its manifest is a header"), **problems(404)},
)
async def download_policy(name: NameDep, version: Version, services: ServicesDep) -> Response:
    """A snapshot's bytes, with its manifest as JSON in the header `X-Policy-Manifest`."""
    experiment = await services.experiments.get(name)
    found = await services.snapshots.get(experiment.experiment_id, version)
    if not found.is_intact:
        raise ServiceError("The stored snapshot is damaged.")
    manifest = {"experiment": name, **_answer(found.record)}
    headers = {
        MANIFEST_HEADER: json.dumps(manifest, default=str),
        "Content-Disposition": f'attachment; filename="{name}-{version}.daband"',
        "ETag": f'"{found.record.sha256}"',
    }
    return Response(found.blob, headers=headers, media_type=MediaType.BYTES)


def _answer(record: SnapshotRecord) -> dict[str, Any]:
    return {
        "version": record.version,
        "offset": record.offset,
        "encoder_version": record.encoder_version,
        "epoch": record.epoch,
        "state_hash": record.state_hash,
        "sha256": record.sha256,
        "size_bytes": record.size_bytes,
        "is_pinned": record.is_pinned,
        "created_at": record.created_at,
        "note": dict(record.note),
    }
