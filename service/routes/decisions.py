"""The hot routes: select and reward, one and many."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from service import request_schemas, schemas
from service.bodies import (
    BINARY,
    STRUCTURED,
    RewardBatchBody,
    RewardBody,
    RoundBody,
    SelectBatchBody,
    SelectBody,
    decode,
    media_type,
)
from service.contexts import binary_side, sides_of
from service.errors import ServiceError
from service.invalid import check_identifier
from service.policies import Served
from service.records import Domain, uuid7
from service.rewarding import Outcome
from service.routes import body_of, json_answer, services_of
from service.routes.documentation import body, problems
from service.selecting import Answered, Round

REPLAYED = {"Idempotent-Replayed": "true"}

router = APIRouter(tags=["decisions"])

Text = Annotated[str | None, Query(description="with a binary body, which has no room for it")]
Arms = Annotated[list[str] | None, Query(description="with a binary body: the arms of its rows")]


@router.post(
    "/select",
    response_model=schemas.Selected,
    responses=problems(404, 409, has_body=True),
    openapi_extra=body(request_schemas.SelectRequest, is_binary=True),
)
async def select(
    request: Request,
    experiment: Text = None,
    request_id: Text = None,
    domain: Domain = Domain.SOURCE,
    eligible_arms: Arms = None,
) -> Response:
    """Decide one round; the decisions are durable when this answers."""
    services = await services_of(request)
    media = media_type(request.headers.get("content-type"), (*STRUCTURED, *BINARY))
    content = await request.body()
    if media in BINARY:
        served = await services.policies.current(check_identifier(experiment or "", "#/experiment"))
        side = binary_side(served.spec, domain, content, media, eligible_arms)
        round_ = Round(_request_id(request_id, "#/request_id"), (side,))
    else:
        asked = decode(content, SelectBody, media)
        served = await services.policies.current(check_identifier(asked.experiment, "#/experiment"))
        round_ = Round(
            _request_id(asked.request_id, "#/request_id"), sides_of(served.spec, asked, media)
        )
    (answered,) = await services.selecting.select(served, [round_])
    return json_answer(answered.body, headers=_headers([answered]))


@router.post(
    "/select/batch",
    response_model=schemas.SelectedBatch,
    responses=problems(404, 409, has_body=True),
    openapi_extra=body(request_schemas.SelectBatchRequest),
)
async def select_batch(request: Request) -> Response:
    """Decide many rounds under one policy; all are written or none."""
    services = await services_of(request)
    media = media_type(request.headers.get("content-type"))
    asked = decode(await request.body(), SelectBatchBody, media)
    served = await services.policies.current(check_identifier(asked.experiment, "#/experiment"))

    def round_of(index: int, each: RoundBody) -> Round:
        pointer = f"#/rounds/{index}"
        request_id = _request_id(each.request_id, f"{pointer}/request_id")
        return Round(request_id, sides_of(served.spec, each, media, pointer))

    rounds = [round_of(index, each) for index, each in enumerate(asked.rounds)]
    answered = await services.selecting.select(served, rounds)
    return json_answer(_batch(served, answered), headers=_headers(answered))


@router.post(
    "/reward",
    status_code=201,
    response_model=schemas.Rewarded,
    responses={
        200: {"model": schemas.Rewarded, "description": "It had been recorded before"},
        **problems(403, 404, 409, has_body=True),
    },
    openapi_extra=body(request_schemas.RewardRequest),
)
async def reward(request: Request) -> Response:
    """Record the reward of a decision; it is durable when this answers, and counts once."""
    services = await services_of(request)
    told = await body_of(request, RewardBody)
    check_identifier(told.decision_id, "#/decision_id")
    appended = await services.rewarding.reward(told.decision_id, told.reward)
    return json_answer(_outcome(told.decision_id, appended), 201 if appended.created else 200)


@router.post(
    "/reward/batch",
    response_model=schemas.RewardedBatch,
    responses=problems(has_body=True),
    openapi_extra=body(request_schemas.RewardBatchRequest),
)
async def reward_batch(request: Request) -> Response:
    """Record many rewards; each is recorded or refused by itself."""
    services = await services_of(request)
    told = await body_of(request, RewardBatchBody)
    for index, each in enumerate(told.rewards):
        check_identifier(each.decision_id, f"#/rewards/{index}/decision_id")
    reported = [(each.decision_id, each.reward) for each in told.rewards]
    outcomes = await services.rewarding.reward_many(reported)
    rewards = [
        _outcome(decision_id, outcome)
        for (decision_id, _), outcome in zip(reported, outcomes, strict=True)
    ]
    return json_answer({"rewards": rewards})


def _request_id(given: str | None, pointer: str) -> str:
    return uuid7() if given is None else check_identifier(given, pointer)


def _headers(answered: list[Answered]) -> dict[str, str] | None:
    return REPLAYED if all(each.is_replay for each in answered) else None


def _batch(served: Served, answered: list[Answered]) -> dict[str, Any]:
    return {"experiment": served.experiment.name, "rounds": [each.body for each in answered]}


def _outcome(decision_id: str, outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, ServiceError):
        return {"decision_id": decision_id, "status": "refused", "problem": outcome.problem()}
    status = "created" if outcome.created else "already_recorded"
    return {"decision_id": decision_id, "status": status, "offset": outcome.event.offset}
