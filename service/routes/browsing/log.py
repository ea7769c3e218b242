"""The log, page by page: decisions with their rewards."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from service.auth.tenants import public_name
from service.codec.decisions import payload_of
from service.codec.log_answers import LogPage, LogQuery
from service.records import Domain, Experiment
from service.routes import ExperimentDep, ServicesDep, json_answer
from service.routes.documentation import problems
from service.services import Services
from service.storage.events.browsing import LogFilter, PairedDecision

MAX_OFFSET = 2**63 - 1

router = APIRouter(prefix="/experiments/{name}", tags=["experiments"])


@router.get("/log", response_model=LogPage, responses=problems(404))
async def show_log(
    experiment: ExperimentDep,
    services: ServicesDep,
    asked: Annotated[LogQuery, Query()],
) -> Response:
    """Decisions with their rewards, the newest first.

    A page looks at 5,000 events at most: with filters it may have fewer entries than `limit`, or none, while
    `next_before` leads to further ones.
    """
    return json_answer(await log_answer(services, experiment, asked))


async def log_answer(services: Services, experiment: Experiment, asked: LogQuery) -> dict[str, Any]:
    """A page of the log, as answered."""
    end = min(asked.before or MAX_OFFSET, experiment.head_offset + 1)
    domain = Domain(asked.domain) if asked.domain else None
    wanted = LogFilter(domain, asked.arm, asked.rewarded)
    page = await services.browsing.page(experiment.experiment_id, end, asked.limit, wanted)
    return {
        "experiment": public_name(experiment.name),
        "last_offset": experiment.head_offset,
        "entries": [_entry(each) for each in page.pairs],
        "next_before": page.next_before,
    }


def _entry(pair: PairedDecision) -> dict[str, Any]:
    decision, payload = pair.decision, payload_of(pair.decision)
    arm = decision.arm or ""
    index = payload.arms.index(arm)
    reward = {"reward": pair.reward, "offset": pair.reward_offset, "at": pair.rewarded_at}
    return {
        "decision_id": decision.event_key,
        "offset": decision.offset,
        "at": decision.created_at,
        "request_id": decision.request_id,
        "domain": decision.domain,
        "arm": arm,
        "propensity": payload.probability(arm),
        "mean": payload.mean[index] if payload.mean else None,
        "bonus": payload.bonus[index] if payload.bonus else None,
        "policy_version": decision.policy_version,
        "encoder_version": payload.encoder_version,
        "row_id": payload.row_id,
        "reward": reward if pair.reward_offset is not None else None,
    }
