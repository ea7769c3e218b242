"""The hot routes: select and reward, one and many."""

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query

from service.codec import answers, requests
from service.codec.bodies import (
    BINARY,
    STRUCTURED,
    RewardBatchBody,
    RewardBody,
    SelectBatchBody,
    SelectBody,
    decode,
    media_type,
    request_id_or_new,
)
from service.codec.contexts import binary_side, sides_of
from service.codec.decisions import Side
from service.codec.wire import REPLAYED, Answer, Header
from service.deciding.policies import Served
from service.deciding.reward import Outcome
from service.deciding.select import Answered, Round
from service.errors import ServiceError, check_identifier
from service.experiment_spec import ExperimentSpec
from service.http.hot_routes import Call, HotRoute, Reply
from service.records import Domain
from service.routes.documentation import body, problems

router = APIRouter(tags=["decisions"], route_class=HotRoute)

READABLE = (*STRUCTURED, *BINARY)
_encode = msgspec.json.Encoder().encode

Text = Annotated[str | None, Query(description="with a binary body, which has no room for it")]
Arms = Annotated[list[str] | None, Query(description="with a binary body: the arms of its rows")]


# Makes the round of a select once its experiment is known.
MakeRound = Callable[[ExperimentSpec], Round]


def _asked(
    call: Call,
    experiment: str | None = None,
    request_id: str | None = None,
    domain: Domain = Domain.SOURCE,
    eligible_arms: list[str] | None = None,
) -> tuple[str, MakeRound]:
    """The experiment's name and its round, of which a binary body leaves all but contexts to the query."""
    media = media_type(call.header(b"content-type"), READABLE)
    if media in BINARY:
        name = check_identifier(experiment or "", "#/experiment")
        content = call.content
        return name, lambda spec: _round(
            request_id, (binary_side(spec, domain, content, media, eligible_arms),)
        )
    asked = decode(call.content, SelectBody, media)
    name = check_identifier(asked.experiment, "#/experiment")
    return name, lambda spec: _round(asked.request_id, sides_of(spec, asked, media))


def _selected(answered: Answered) -> Answer:
    return Answer(_encode(answered.body), headers=(REPLAYED,) if answered.is_replay else ())


class _Asker:
    """Waits for a decision on behalf of a reply."""

    __slots__ = ("_reply",)
    is_gone = False  # what was asked for on the lane is decided, whether its caller waits or not

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def take(self, answered: Answered) -> None:
        """Send it; what is wrong with one answer is not the matter of others in its turn."""
        try:
            answer = _selected(answered)
        except Exception as error:  # noqa: BLE001
            self._reply.fail(error)
        else:
            self._reply.answer(answer)

    def fail(self, error: Exception) -> None:
        """Send what callers are told of it."""
        self._reply.fail(error)


async def select(
    call: Call,
    experiment: Text = None,
    request_id: Text = None,
    domain: Domain = Domain.SOURCE,
    eligible_arms: Arms = None,
) -> Answer:
    """Decide one round; the decisions are durable when this answers."""
    name, round_of = _asked(call, experiment, request_id, domain, eligible_arms)
    served = await call.services.policies.current(call.realm.full_name(name))
    return _selected(await call.services.turn_selecting.select(served, round_of(served.spec)))


class SelectRoute(HotRoute):
    """Answers selects without a task for each, where the policy is in memory."""

    def begin(self, call: Call, reply: Reply) -> None:
        """Let the round join the batch of its event-loop tick."""
        query, services = self.query(call.scope), call.services
        name, round_of = _asked(call, **query)
        served = services.policies.known(call.realm.full_name(name))
        if served is None:
            reply.later(select(call, **query))
        else:
            services.turn_selecting.join(served, round_of(served.spec), _Asker(reply))


router.add_api_route(
    "/select",
    select,
    methods=["POST"],
    route_class_override=SelectRoute,
    response_model=answers.Selected,
    responses=problems(404, 409, has_body=True),
    openapi_extra=body(requests.SelectRequest, is_binary=True),
)


@router.post(
    "/select/batch",
    response_model=answers.SelectedBatch,
    responses=problems(404, 409, has_body=True),
    openapi_extra=body(requests.SelectBatchRequest),
)
async def select_batch(call: Call) -> Answer:
    """Decide many rounds under one policy; all are written or none."""
    services = call.services
    media = media_type(call.header(b"content-type"))
    asked = decode(call.content, SelectBatchBody, media)
    name = check_identifier(asked.experiment, "#/experiment")
    served = await services.policies.current(call.realm.full_name(name))
    rounds: list[Round] = []
    for index, each in enumerate(asked.rounds):
        pointer = f"#/rounds/{index}"
        sides = sides_of(served.spec, each, media, pointer)
        rounds.append(_round(each.request_id, sides, pointer))
    answered = await services.selecting.select(served, rounds)
    return Answer(_encode(_batch(served, answered)), headers=_headers(answered))


@router.post(
    "/reward",
    status_code=201,
    response_model=answers.Rewarded,
    responses={
        200: {"model": answers.Rewarded, "description": "It had been recorded before"},
        **problems(403, 404, 409, has_body=True),
    },
    openapi_extra=body(requests.RewardRequest),
)
async def reward(call: Call) -> Answer:
    """Record the reward of a decision; it is durable when this answers, and counts once."""
    told = decode(call.content, RewardBody, media_type(call.header(b"content-type")))
    check_identifier(told.decision_id, "#/decision_id")
    appended = await call.services.rewarding.reward(told.decision_id, told.reward, call.realm)
    body = _encode(_outcome(told.decision_id, appended))
    return Answer(body, 201 if appended.created else 200)


@router.post(
    "/reward/batch",
    response_model=answers.RewardedBatch,
    responses=problems(has_body=True),
    openapi_extra=body(requests.RewardBatchRequest),
)
async def reward_batch(call: Call) -> Answer:
    """Record many rewards; each is recorded or refused by itself."""
    told = decode(call.content, RewardBatchBody, media_type(call.header(b"content-type")))
    for index, each in enumerate(told.rewards):
        check_identifier(each.decision_id, f"#/rewards/{index}/decision_id")
    reported = [(each.decision_id, each.reward) for each in told.rewards]
    outcomes = await call.services.rewarding.reward_many(reported, call.realm)
    rewards = [
        _outcome(decision_id, outcome)
        for (decision_id, _), outcome in zip(reported, outcomes, strict=True)
    ]
    return Answer(_encode({"rewards": rewards}))


def _round(request_id: str | None, sides: tuple[Side, ...], pointer: str = "#") -> Round:
    return Round(request_id_or_new(request_id, pointer), sides, is_new=request_id is None)


def _headers(answered: list[Answered]) -> tuple[Header, ...]:
    return (REPLAYED,) if all(each.is_replay for each in answered) else ()


def _batch(served: Served, answered: list[Answered]) -> dict[str, Any]:
    return {"experiment": served.spec.name, "rounds": [each.body for each in answered]}


def _outcome(decision_id: str, outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, ServiceError):
        return {"decision_id": decision_id, "status": "refused", "problem": outcome.problem()}
    status = "created" if outcome.created else "already_recorded"
    return {"decision_id": decision_id, "status": status, "offset": outcome.event.offset}
