"""Transfer: judgements by encoder version, the audit trail, the report."""

import asyncio
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from fastapi import APIRouter, Response

from service.auth.tenants import public_name
from service.codec import answers
from service.experiment_spec import ExperimentSpec
from service.learning.restore import LearnerStore
from service.records import Experiment, utc_now
from service.reporting.transfer_history import (
    act_entry,
    as_csv,
    entry,
    gate_entries,
    target_regret,
    versions,
)
from service.routes import ExperimentDep, ServicesDep, html_answer, json_answer
from service.routes.documentation import problems
from service.routes.experiments import state_answer
from service.services import Services

router = APIRouter(prefix="/experiments/{name}", tags=["transfer"])


class Format(StrEnum):
    """The format of the judgements."""

    JSON = "json"
    CSV = "csv"


@router.get(
    "/transfer",
    response_model=answers.Transfer,
    responses={
        200: {"content": {"text/csv": {"schema": {"type": "string"}}}},
        **problems(404),
    },
)
async def show_transfer(
    experiment: ExperimentDep, services: ServicesDep, format: Format = Format.JSON
) -> Response:
    """The expected target reward, verdicts, label-free signs and gate results, by encoder version."""
    found = await transfer_answer(services, experiment)
    if format is Format.JSON:
        return json_answer(found)
    file = f"{public_name(experiment.name)}-transfer.csv"
    headers = {"Content-Disposition": f'attachment; filename="{file}"'}
    return Response(as_csv(found["versions"]), headers=headers, media_type="text/csv")


@router.get("/audit", response_model=answers.AuditTrail, responses=problems(404))
async def show_audit(experiment: ExperimentDep, services: ServicesDep) -> Response:
    """The experiment's audit trail in order: phases, encoders, promotions, restores, pauses."""
    lifecycle = await services.history.lifecycle(experiment.experiment_id)
    acts = await services.audit.of_experiment(experiment.experiment_id)
    entries = [*map(entry, lifecycle), *map(act_entry, acts)]
    entries.sort(key=lambda each: each["at"])
    return json_answer({"experiment": public_name(experiment.name), "entries": entries})


@router.get(
    "/report",
    response_class=Response,
    responses={
        200: {"content": {"text/html": {}}, "description": "The report, one self-contained page"},
        **problems(404),
    },
)
async def show_report(experiment: ExperimentDep, services: ServicesDep) -> Response:
    """The transfer report as one self-contained page: verdict, plots and figures."""
    return html_answer(await report_page(services, experiment))


async def report_page(
    services: Services, experiment: Experiment, remarks: Sequence[str] = ()
) -> str:
    """The transfer report, with what should be known of the tables that were read."""
    from service.reporting.report import ReportFacts, render  # noqa: PLC0415 - loads the plotting library

    spec = ExperimentSpec.of(experiment)
    state = await state_answer(services, experiment)
    found = await transfer_answer(services, experiment)
    facts = ReportFacts(spec, found, state, utc_now(), remarks)
    loaded = await LearnerStore(services.event_log, services.snapshots).load(experiment, spec)
    return await asyncio.to_thread(render, facts, loaded.learner)


async def transfer_answer(services: Services, experiment: Experiment) -> dict[str, Any]:
    """The transfer of an experiment, as answered."""
    lifecycle = await services.history.lifecycle(experiment.experiment_id)
    records = await services.transfers.list(experiment.experiment_id)
    rewards = await services.history.target_rewards(experiment.experiment_id)
    newest = await services.snapshots.list(experiment.experiment_id, limit=1)
    judged = versions(records, lifecycle)
    newest_judgement = records[-1].judgement if records else {}
    return {
        "experiment": public_name(experiment.name),
        "phase": experiment.phase.value,
        "encoder_version": newest[0].encoder_version if newest else 0,
        "verdict": judged[-1]["verdict"] if judged else None,
        "expected": judged[-1]["expected"] if judged else None,
        "conditions": newest_judgement.get("conditions", []),
        "abstention": newest_judgement.get("abstention", []),
        "versions": judged,
        "gate": gate_entries(lifecycle),
        "target_regret": target_regret(lifecycle, rewards),
    }
