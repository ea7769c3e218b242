"""Offline evaluations: queue, follow, cancel, read."""

import asyncio
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request, Response

from service.codec import answers
from service.codec.bodies import MediaType
from service.errors import EvaluationUnfinished, InvalidRequest, refuse
from service.evaluating.candidates import UnfitCandidateError, parsed
from service.evaluating.request import EvaluationRequest, LogFile, StoredRequest
from service.experiment_spec import ExperimentSpec
from service.limits import BudgetLimits
from service.ops.unnamed_files import unnamed_file
from service.records import Domain, Evaluation, Experiment, check_identifier, utc_now
from service.routes import (
    CallerDep,
    Limit,
    ServicesDep,
    body_of,
    experiment_of,
    html_answer,
    json_answer,
    received,
)
from service.routes.documentation import body, problems, stream
from service.services import Services

router = APIRouter(prefix="/evaluations", tags=["evaluations"])

Name = Annotated[str | None, Query(description="an experiment; without it all")]


class CancelBody(msgspec.Struct, forbid_unknown_fields=True):
    """POST /evaluations/{evaluation_id}/cancel."""


@router.post(
    "",
    status_code=202,
    response_model=answers.EvaluationJob,
    responses=problems(404, 409, has_body=True),
    openapi_extra=body(answers.EvaluationRequest),
)
async def create_evaluation(request: Request, services: ServicesDep, caller: CallerDep) -> Response:
    """Queue an offline evaluation of candidates on an experiment's log."""
    wanted = await body_of(request, EvaluationRequest)
    experiment = await services.experiments.get(caller.tenant_scope.full_name(wanted.experiment))
    return json_answer(_answer(await queued(services, experiment, wanted)), 202)


async def queued(
    services: Services, experiment: Experiment, wanted: EvaluationRequest
) -> Evaluation:
    """The job of a request, after all checks that need no log."""
    wanted.check()
    if wanted.request_id is not None:
        check_identifier(wanted.request_id, "#/request_id")
    _check_candidates(wanted, ExperimentSpec.of(experiment), services.limits)
    job, _ = await services.evaluations.create(
        experiment.experiment_id, wanted.to_json(), wanted.request_id
    )
    return job


@router.post(
    "/file",
    status_code=202,
    response_model=answers.EvaluationJob,
    responses=problems(404, has_body=True),
    openapi_extra=stream((MediaType.JSON_LINES, MediaType.BYTES)),
)
async def evaluate_sent_file(
    request: Request,
    services: ServicesDep,
    caller: CallerDep,
    asked: Annotated[answers.FileEvaluationQuery, Query()],
) -> Response:
    """Queue an evaluation of candidates on the log file that is the body; the file is not kept.

    A process evaluates the files that it received one after the other, within the limits of an experiment.
    """
    experiment = await services.experiments.get(caller.tenant_scope.full_name(asked.experiment))
    with ExitStack() as spool:
        file, path = spool.enter_context(unnamed_file())
        await received(request, file)
        job = await begun(services, experiment, asked, path, spool)
        return json_answer(_answer(job), 202)


async def begun(
    services: Services,
    experiment: Experiment,
    asked: answers.FileEvaluationQuery,
    path: Path,
    spool: ExitStack,
) -> Evaluation:
    """The job of a file, which goes with `spool`."""
    try:
        candidates = tuple(parsed(each) for each in dict.fromkeys(asked.candidate))
    except UnfitCandidateError as error:
        raise InvalidRequest(str(error)) from None
    wanted = StoredRequest(
        experiment=asked.experiment,
        candidates=candidates,
        confidence=asked.confidence,
        domain=Domain(asked.domain),
        seed=asked.seed,
        file=LogFile(asked.format, asked.min_propensity, asked.skip_bad),
    )
    return await services.uploaded_logs.begin(experiment.experiment_id, wanted, path, spool)


@router.get("", response_model=answers.EvaluationList, responses=problems(404))
async def list_evaluations(
    services: ServicesDep, caller: CallerDep, limit: Limit = 100, experiment: Name = None
) -> Response:
    """The newest evaluations first, without their results; those of one experiment, or all."""
    scope = caller.tenant_scope
    known = await experiment_of(experiment, services, caller) if experiment else None
    only = known.experiment_id if known else None
    found = await services.evaluations.list(limit, scope, only)
    return json_answer({"evaluations": [_answer(each) for each in found]})


@router.get(
    "/{evaluation_id}",
    response_model=answers.EvaluationJob,
    responses=problems(404),
)
async def show_evaluation(evaluation_id: str, services: ServicesDep, caller: CallerDep) -> Response:
    """An evaluation's status, and its result when it is done."""
    return json_answer(_answer(await services.evaluations.get(evaluation_id, caller.tenant_scope)))


@router.post(
    "/{evaluation_id}/cancel",
    status_code=202,
    response_model=answers.EvaluationJob,
    responses=problems(404, has_body=True),
    openapi_extra=body(answers.CancelRequest, is_required=False),
)
async def cancel_evaluation(
    evaluation_id: str, request: Request, services: ServicesDep, caller: CallerDep
) -> Response:
    """Cancel an evaluation; one that has ended does not change."""
    if await request.body():
        await body_of(request, CancelBody)
    stopped = await services.evaluations.cancel(evaluation_id, caller.tenant_scope)
    return json_answer(_answer(stopped), 202)


@router.get(
    "/{evaluation_id}/report",
    response_class=Response,
    responses={
        200: {"description": "A page with tables and plots", "content": {"text/html": {}}},
        **problems(404, 409),
    },
)
async def show_report(evaluation_id: str, services: ServicesDep, caller: CallerDep) -> Response:
    """A finished evaluation as an HTML page."""
    found = await services.evaluations.get(evaluation_id, caller.tenant_scope)
    if found.result is None:
        raise EvaluationUnfinished
    from service.evaluating.presenting.html_report import page  # noqa: PLC0415 - loads the plotting library

    return html_answer(
        await asyncio.to_thread(page, json.loads(found.result), found.ended_at or utc_now())
    )


def _check_candidates(
    request: EvaluationRequest, spec: ExperimentSpec, limits: BudgetLimits
) -> None:
    for index, candidate in enumerate(request.candidates):
        pointer = f"#/candidates/{index}"
        if candidate.kind == "arm" and candidate.arm not in spec.arms:
            refuse("The experiment has no arm of this name.", f"{pointer}/arm")
        if candidate.kind != "system":
            continue
        try:
            wanted = spec.changed(candidate.method or "", candidate.config)
            wanted.check()
            wanted.check_budget(limits)
        except InvalidRequest as error:
            places = error.members.get("errors", [])
            moved = [{**each, "pointer": pointer + each["pointer"][1:]} for each in places]
            raise InvalidRequest(errors=moved) from error


def _answer(job: Evaluation) -> dict[str, Any]:
    request = json.loads(job.request)
    return {
        "evaluation_id": job.evaluation_id,
        "experiment": request["experiment"],
        "status": job.status.value,
        "progress": {"done": job.done, "total": job.total},
        "created_at": job.created_at,
        "ended_at": job.ended_at,
        "problem": job.problem,
        "request": request,
        "result": None if job.result is None else json.loads(job.result),
    }
