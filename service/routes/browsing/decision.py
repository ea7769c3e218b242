"""One decision of the log, beside the same one derived again."""

from typing import Any

from fastapi import APIRouter, Response

from service.auth.tenants import public_name
from service.codec.decisions import decision_answer, payload_of, stored_answer
from service.codec.log_answers import DecisionAgain
from service.deciding.deriving import Deriving
from service.errors import UnknownDecision
from service.records import Experiment, StoredEvent, check_identifier
from service.routes import ExperimentDep, ServicesDep, json_answer
from service.routes.documentation import problems
from service.services import Services

router = APIRouter(prefix="/experiments/{name}", tags=["experiments"])


@router.get("/decisions/{decision_id}", response_model=DecisionAgain, responses=problems(404))
async def show_decision(
    decision_id: str, experiment: ExperimentDep, services: ServicesDep
) -> Response:
    """A decision as it was logged, and as it is derived again.

    The policy version is restored and scores the stored context again under the decision's id. Nothing is
    logged.
    """
    return json_answer(await decision_again(services, experiment, decision_id))


async def decision_again(
    services: Services, experiment: Experiment, decision_id: str
) -> dict[str, Any]:
    """The decision, as answered."""
    event = await _stored(services, experiment, decision_id)
    deriving = Deriving(services.policies, services.versions, services.selecting)
    found = await deriving.derive(experiment.name, event)
    chosen, key = found.chosen, event.event_key
    reward = (await services.event_log.find_rewards(experiment.experiment_id, [key])).get(key)
    return {
        "experiment": public_name(experiment.name),
        "decision_id": key,
        "offset": event.offset,
        "at": event.created_at,
        "request_id": event.request_id,
        "domain": event.domain,
        "policy_version": event.policy_version,
        "encoder_version": payload_of(event).encoder_version,
        "logged": stored_answer(event),
        "derived": chosen and decision_answer(key, chosen.arm, chosen.payload),
        "is_equal": found.is_equal,
        "largest_difference": found.largest_difference,
        "problem": found.problem,
        "reward": reward
        and {"reward": reward.reward, "offset": reward.offset, "at": reward.created_at},
    }


async def _stored(services: Services, experiment: Experiment, decision_id: str) -> StoredEvent:
    """The decision with its context; one of another experiment is unknown."""
    check_identifier(decision_id, "#/decision_id")
    found = await services.event_log.find_decision(decision_id)
    if found is None or found.experiment_id != experiment.experiment_id:
        raise UnknownDecision
    at = await services.event_log.events_at(experiment.experiment_id, [found.offset])
    return at[found.offset]
