"""Offline evaluations of an experiment: start one, follow it, read its result."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Form, Query, Request, Response
from starlette.datastructures import FormData
from starlette.responses import RedirectResponse

from model import SYSTEMS
from service.auth.access import CONSOLE
from service.auth.tenants import public_name
from service.codec.answers import FileEvaluationQuery
from service.codec.bodies import decode
from service.console.creating.forms import form_of, has_file, query_of, save, suffix_of, text_of
from service.console.rendering import html, page
from service.errors import InvalidRequest, UnknownEvaluation, refuse
from service.evaluating.candidates import UnfitCandidateError, parsed
from service.evaluating.request import EvaluationRequest, stored_request
from service.experiment_spec import ExperimentSpec
from service.ops.unnamed_files import unnamed_file
from service.records import (
    Evaluation,
    EvaluationStatus,
    Experiment,
    Phase,
    SnapshotRecord,
    utc_now,
)
from service.routes import CallerDep, ExperimentDep, ServicesDep
from service.routes.evaluations import begun, queued, show_report
from service.services import Services

MOST_LISTED = 50
MOST_ARMS, MOST_VERSIONS = 30, 12  # offered; others can be written
SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".dsjson": "dsjson", ".csv": "csv"}
# The form of a log file, as it is before anything was typed.
FILE_FIELDS = {"candidates": "uniform", "confidence": "0.95", "min_propensity": ""}
OPEN = (EvaluationStatus.QUEUED, EvaluationStatus.RUNNING)

router = APIRouter(prefix="/console/experiments/{name}/evaluations", include_in_schema=False)

Word = Annotated[str, Query(max_length=64)]


@dataclass(frozen=True, slots=True)
class Asked:
    """The form: offered candidates, written ones, and how to compare them."""

    candidate: Annotated[list[str] | None, Form()] = None
    more: Annotated[str, Form(max_length=8192)] = ""
    confidence: Annotated[float, Form()] = 0.95
    domain: Annotated[str, Form(max_length=16)] = "source"
    target: Annotated[bool, Form()] = False

    def request(self, experiment: Experiment) -> EvaluationRequest:
        """The request as the API takes it; refused if it is none."""
        written = [line.strip() for line in self.more.splitlines() if line.strip()]
        try:
            found = [parsed(each) for each in dict.fromkeys([*(self.candidate or ()), *written])]
        except UnfitCandidateError as error:
            raise InvalidRequest(str(error)) from None
        body = {
            "experiment": public_name(experiment.name),
            "candidates": found,
            "confidence": self.confidence,
            "domain": self.domain,
            "target": self.target,
        }
        return decode(msgspec.json.encode(body), EvaluationRequest)


async def job_of(
    evaluation_id: str, experiment: ExperimentDep, services: ServicesDep, caller: CallerDep
) -> Evaluation:
    """The evaluation in the path; one of another experiment is unknown."""
    found = await services.evaluations.get(evaluation_id, caller.tenant_scope)
    if found.experiment_id != experiment.experiment_id:
        raise UnknownEvaluation
    return found


JobDep = Annotated[Evaluation, Depends(job_of)]


@router.get("")
async def evaluations_page(
    request: Request, experiment: ExperimentDep, services: ServicesDep
) -> Response:
    """The form, and the newest evaluations."""
    return await _list(request, experiment, services)


@router.post("")
async def start(
    request: Request,
    experiment: ExperimentDep,
    services: ServicesDep,
    asked: Annotated[Asked, Depends()],
) -> Response:
    """Queue an evaluation and show it."""
    try:
        job = await queued(services, experiment, asked.request(experiment))
    except InvalidRequest as error:
        return await _list(request, experiment, services, asked, error.explanation)
    return RedirectResponse(_place(experiment, job.evaluation_id), 303)


@router.post("/file")
async def evaluate_file(
    request: Request, experiment: ExperimentDep, services: ServicesDep
) -> Response:
    """Begin an evaluation of candidates on a log file and show it."""
    async with form_of(request) as form:
        try:
            job = await _of_file(form, experiment, services)
        except InvalidRequest as error:
            typed = {name: text_of(form, name) for name in FILE_FIELDS}
            refused = {"file_refusal": error.explanation, "typed": typed}
            return await _list(request, experiment, services, of_file=refused)
    return RedirectResponse(_place(experiment, job.evaluation_id), 303)


async def _of_file(form: FormData, experiment: Experiment, services: Services) -> Evaluation:
    if not has_file(form, "file"):
        refuse("Choose a log file.", "#/file")
    with ExitStack() as spool:
        suffix = suffix_of(form, "file", list(SUFFIXES))
        file, path = spool.enter_context(unnamed_file())
        await asyncio.to_thread(save, form, "file", file)
        names = [each.strip() for each in text_of(form, "candidates").splitlines() if each.strip()]
        given = {
            "experiment": public_name(experiment.name),
            "candidate": names,
            "format": SUFFIXES[suffix],
            "confidence": text_of(form, "confidence"),
            "min_propensity": text_of(form, "min_propensity") or None,
        }
        asked = query_of(FileEvaluationQuery, given)
        return await begun(services, experiment, asked, path, spool)


@router.get("/{evaluation_id}")
async def evaluation_page(request: Request, experiment: ExperimentDep, job: JobDep) -> Response:
    """One evaluation: its progress, later its result."""
    return page(request, "evaluation/page.html", **await _shown(experiment, job))


@router.get("/{evaluation_id}/live")
async def live_part(experiment: ExperimentDep, job: JobDep, seen: Word = "") -> Response:
    """Progress or result; 204 while it is as it was."""
    if seen == _mark(job):
        return Response(status_code=204)
    return html("evaluation/live.html", **await _shown(experiment, job))


@router.get("/{evaluation_id}/report")
async def report_page(job: JobDep, services: ServicesDep, caller: CallerDep) -> Response:
    """The result as a page of its own, the same that the API gives."""
    return await show_report(job.evaluation_id, services, caller)


@router.post("/{evaluation_id}/cancel")
async def cancel(
    experiment: ExperimentDep, job: JobDep, services: ServicesDep, caller: CallerDep
) -> Response:
    """Stop it, unless it has ended."""
    await services.evaluations.cancel(job.evaluation_id, caller.tenant_scope)
    return RedirectResponse(_place(experiment, job.evaluation_id), 303)


async def _list(
    request: Request,
    experiment: Experiment,
    services: Services,
    asked: Asked | None = None,
    refusal: str | None = None,
    of_file: Mapping[str, Any] | None = None,
) -> Response:
    versions = _by_encoder(await services.snapshots.list(experiment.experiment_id, limit=200))
    spec = ExperimentSpec.of(experiment)
    serving = [f"version:{versions[0].version}"] if versions else []
    chosen = [*serving, "uniform"] if asked is None else asked.candidate or []
    found = await services.evaluations.list(
        MOST_LISTED, request.scope["caller"].tenant_scope, experiment.experiment_id
    )
    return page(
        request,
        "evaluation/list.html",
        200 if refusal is None and not of_file else 422,
        name=public_name(experiment.name),
        experiment=experiment,
        choices=_choices(spec, versions),
        chosen=chosen,
        asked=asked or Asked(),
        refusal=refusal,
        suffixes=list(SUFFIXES),
        **{"file_refusal": None, "typed": FILE_FIELDS, **(of_file or {})},
        is_open=experiment.phase is Phase.CONTINUED,
        jobs=[(job, stored_request(job.request)) for job in found],
    )


def _by_encoder(newest_first: Sequence[SnapshotRecord]) -> list[SnapshotRecord]:
    """The newest version of each encoder."""
    found: dict[int, SnapshotRecord] = {}
    for each in newest_first:
        found.setdefault(each.encoder_version, each)
    return list(found.values())[:MOST_VERSIONS]


def _choices(spec: ExperimentSpec, versions: Sequence[SnapshotRecord]) -> dict[str, dict[str, str]]:
    """The titles of candidates that can be offered, by kind and as on the command line.

    The newest version serves.
    """
    policies = {
        f"version:{each.version}": f"version {each.version}, encoder {each.encoder_version}"
        + ("" if place else ": it serves")
        for place, each in enumerate(versions)
    }
    found = {
        "Stored policies": policies,
        "Baselines": {"uniform": "every arm alike"},
        "Always the same arm": {f"arm:{each}": each for each in spec.arms[:MOST_ARMS]},
        "A method that learns from the log": {f"system:{each}": each for each in SYSTEMS},
    }
    return {title: some for title, some in found.items() if some}


async def _shown(experiment: Experiment, job: Evaluation) -> dict[str, Any]:
    return {
        "name": public_name(experiment.name),
        "experiment": experiment,
        "job": job,
        "wanted": stored_request(job.request),
        "is_running": job.status in OPEN,
        "mark": _mark(job),
        **await _result(job),
    }


async def _result(job: Evaluation) -> dict[str, Any]:
    """What the template of results shows, with its drawings."""
    if job.result is None:
        return {}
    from service.evaluating.presenting.html_report import shown_values  # noqa: PLC0415 - loads the plotting library

    made_at = job.ended_at or utc_now()
    return await asyncio.to_thread(shown_values, json.loads(job.result), made_at)


def _mark(job: Evaluation) -> str:
    """Changes with what is shown."""
    return f"{job.status.value}-{job.done}-{job.total}"


def _place(experiment: Experiment, evaluation_id: str) -> str:
    return f"{CONSOLE}/experiments/{public_name(experiment.name)}/evaluations/{evaluation_id}"
