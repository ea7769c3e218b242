"""Snapshots: list, restore, download."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from service.auth.tenants import public_name
from service.codec import answers, requests
from service.learning.restore import intact
from service.records import EventKind, Experiment, SnapshotRecord
from service.routes import ExperimentDep, Limit, ServicesDep, json_answer
from service.routes.audit import Audit, audit_of, logged
from service.routes.documentation import body, bytes_answer, problems
from service.routes.exporting import policy_answer
from service.services import Services

MAX_VERSION = 2**63 - 1

router = APIRouter(prefix="/experiments/{name}/snapshots", tags=["snapshots"])

Version = Annotated[int, Path(ge=1, le=MAX_VERSION)]


@router.get("", response_model=answers.SnapshotList, responses=problems(404))
async def list_snapshots(
    experiment: ExperimentDep, services: ServicesDep, limit: Limit = 100
) -> Response:
    """The snapshots that are kept, the newest first."""
    found = await services.snapshots.list(experiment.experiment_id, limit)
    name = public_name(experiment.name)
    return json_answer({"experiment": name, "snapshots": [_answer(each) for each in found]})


@router.post(
    "/{version}/restore",
    status_code=202,
    response_model=answers.Restored,
    responses=problems(404, 409, has_body=True),
    openapi_extra=body(requests.AuditRequest, is_required=False),
)
async def restore_snapshot(
    experiment: ExperimentDep, version: Version, request: Request, services: ServicesDep
) -> Response:
    """Roll back to a version: written to the log now, carried out when the trainer folds it."""
    audit = await audit_of(request)
    return json_answer(await restore(services, experiment, version, audit), 202)


async def restore(
    services: Services, experiment: Experiment, version: int, audit: Audit
) -> dict[str, Any]:
    """Write the restore to the log, as answered."""
    found = intact(await services.snapshots.get(experiment.experiment_id, version))
    # The trainer and every replay of the log need it, so it is never pruned.
    await services.snapshots.pin(experiment.experiment_id, version)
    facts = {"version": version, "sha256": found.record.sha256}
    event = audit.event(experiment.experiment_id, EventKind.RESTORE, facts, str(version))
    return {**await logged(services, experiment, event), "version": version}


@router.get(
    "/{version}/policy",
    response_class=Response,
    responses={
        **bytes_answer("The policy as safetensors; its manifest is also a header"),
        **problems(404, 409),
    },
)
async def download_policy(
    experiment: ExperimentDep, version: Version, services: ServicesDep
) -> Response:
    """The target policy as safetensors; its manifest is also in the header `X-Policy-Manifest`."""
    found = intact(await services.snapshots.get(experiment.experiment_id, version))
    return await policy_answer(experiment, found.blob, str(version))


def _answer(record: SnapshotRecord) -> dict[str, Any]:
    found = asdict(record)
    del found["experiment_id"]
    return found
