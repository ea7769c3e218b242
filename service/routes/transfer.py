"""How far the source carries over: judgements by version, the audit trail."""

from enum import StrEnum
from typing import Any

from fastapi import APIRouter, Response

from service import schemas
from service.regret import target_regret
from service.routes import NameDep, ServicesDep, json_answer
from service.routes.documentation import problems
from service.services import Services
from service.transfer_history import as_csv, entry, gate_entries, versions

router = APIRouter(prefix="/experiments/{name}", tags=["transfer"])


class Format(StrEnum):
    """How the judgements are written."""

    JSON = "json"
    CSV = "csv"


@router.get("/transfer", response_model=schemas.Transfer, responses=problems(404))
async def show_transfer(
    name: NameDep, services: ServicesDep, format: Format = Format.JSON
) -> Response:
    """The bound's terms, label-free signs, verdicts and the gate's, by encoder version."""
    found = await transfer_answer(services, name)
    if format is Format.JSON:
        return json_answer(found)
    headers = {"Content-Disposition": f'attachment; filename="{name}-transfer.csv"'}
    return Response(as_csv(found["versions"]), headers=headers, media_type="text/csv")


@router.get("/audit", response_model=schemas.AuditTrail, responses=problems(404))
async def show_audit(name: NameDep, services: ServicesDep) -> Response:
    """What happened to the experiment: phases, encoders, promotions and restores, in order."""
    experiment = await services.experiments.get(name)
    lifecycle = await services.history.lifecycle(experiment.experiment_id)
    return json_answer({"experiment": name, "entries": [entry(each) for each in lifecycle]})


async def transfer_answer(services: Services, name: str) -> dict[str, Any]:
    """All that is known of an experiment's transfer."""
    experiment = await services.experiments.get(name)
    lifecycle = await services.history.lifecycle(experiment.experiment_id)
    records = await services.transfers.list(experiment.experiment_id)
    rewards = await services.history.target_rewards(experiment.experiment_id)
    newest = await services.snapshots.list(experiment.experiment_id, limit=1)
    judged = versions(records, lifecycle)
    return {
        "experiment": name,
        "phase": experiment.phase.value,
        "encoder_version": newest[0].encoder_version if newest else 0,
        "verdict": judged[-1]["verdict"] if judged else None,
        "versions": judged,
        "gate": gate_entries(lifecycle),
        "target_regret": target_regret(lifecycle, rewards),
    }
