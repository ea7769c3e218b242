"""Candidates: encoders that the gate refused or that wait for promotion."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from service.auth.tenants import public_name
from service.codec import answers, requests
from service.learning.restore import intact
from service.records import CandidateEncoder, EventKind, Experiment
from service.routes import ExperimentDep, ServicesDep, json_answer
from service.routes.audit import Audit, audit_of, logged
from service.routes.documentation import body, bytes_answer, problems
from service.routes.exporting import policy_answer
from service.routes.snapshots import MAX_VERSION
from service.services import Services

router = APIRouter(prefix="/experiments/{name}/candidates", tags=["candidates"])

Episode = Annotated[int, Path(ge=1, le=MAX_VERSION)]


@router.get("", response_model=answers.CandidateList, responses=problems(404))
async def list_candidates(experiment: ExperimentDep, services: ServicesDep) -> Response:
    """The trained encoders that are not served, the newest first."""
    found = await services.candidates.list(experiment.experiment_id)
    name = public_name(experiment.name)
    return json_answer({"experiment": name, "candidates": [_answer(each) for each in found]})


@router.post(
    "/{episode}/promote",
    status_code=202,
    response_model=answers.Promoted,
    responses=problems(404, 409, has_body=True),
    openapi_extra=body(requests.AuditRequest, is_required=False),
)
async def promote_candidate(
    experiment: ExperimentDep, episode: Episode, request: Request, services: ServicesDep
) -> Response:
    """Promote a candidate: written to the log now, carried out when the trainer folds it."""
    audit = await audit_of(request)
    return json_answer(await promote(services, experiment, episode, audit), 202)


async def promote(
    services: Services, experiment: Experiment, episode: int, audit: Audit
) -> dict[str, Any]:
    """Write the promotion to the log, as answered."""
    found = intact(await services.candidates.get(experiment.experiment_id, episode))
    # The trainer and every replay of the log need it, so it is never pruned.
    await services.candidates.pin(experiment.experiment_id, episode)
    facts = {"episode": episode, "sha256": found.sha256}
    event = audit.event(experiment.experiment_id, EventKind.PROMOTION, facts, str(episode))
    return {**await logged(services, experiment, event), "episode": episode}


@router.get(
    "/{episode}/policy",
    response_class=Response,
    responses={**bytes_answer("The candidate's policy as safetensors"), **problems(404, 409)},
)
async def download_candidate(
    experiment: ExperimentDep, episode: Episode, services: ServicesDep
) -> Response:
    """The target policy of a candidate, for inspection offline."""
    found = intact(await services.candidates.get(experiment.experiment_id, episode))
    return await policy_answer(experiment, found.blob, f"candidate-{episode}")


def _answer(candidate: CandidateEncoder) -> dict[str, Any]:
    found = asdict(candidate)
    del found["experiment_id"], found["blob"]
    return found
