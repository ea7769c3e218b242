"""The fast routes: select and reward, one and many."""

from collections.abc import Awaitable, Sequence
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query

from service.codec import answers, requests
from service.codec.bodies import (
    BINARY,
    STRUCTURED,
    BinarySelect,
    Finite,
    MediaType,
    ReportedReward,
    RewardBatchBody,
    RewardBody,
    RoundBody,
    SelectBatchBody,
    SelectBody,
    decode,
    media_type,
    request_id_or_new,
)
from service.codec.contexts import check_image_count, context_count, offered_arms, sides_of
from service.codec.wire import REPLAYED, Answer
from service.deciding.reward import Outcome
from service.deciding.select import Answered, DecisionRequest
from service.errors import InvalidRequest, ServiceError
from service.experiment_spec import ExperimentSpec
from service.http.fast_path import Call, FastRoute
from service.images.decoding import MAX_REQUEST_PIXELS
from service.records import Domain, check_identifier
from service.routes import beside_requests
from service.routes.documentation import body, problems

router = APIRouter(tags=["decisions"], route_class=FastRoute)

READABLE = (*STRUCTURED, *BINARY)

Text = Annotated[str | None, Query(description="with a binary body")]
Arms = Annotated[list[str] | None, Query(description="with a binary body: the arms of its rows")]


@router.post(
    "/select",
    response_model=answers.Selected,
    responses=problems(404, 409, has_body=True),
    openapi_extra=body(requests.SelectRequest, binary=BINARY),
)
def select(
    call: Call,
    experiment: Text = None,
    request_id: Text = None,
    domain: Domain = Domain.SOURCE,
    eligible_arms: Arms = None,
) -> Awaitable[Answer]:
    """Decide one round; the decisions are durable when this answers."""
    media = media_type(call.header(b"content-type"), READABLE)
    asked: SelectBody | BinarySelect
    if media in BINARY:
        asked = BinarySelect(experiment or "", request_id, domain, eligible_arms, call.content)
    else:
        asked = decode(call.content, SelectBody, media)
    name = call.tenant_scope.full_name(check_identifier(asked.experiment, "#/experiment"))
    served = call.services.policies.known(name)
    if served is None or served.spec.image is not None:
        return _select_later(call, name, asked, media)
    return call.services.batcher.select(served, _round(served.spec, asked, media))


async def _select_later(
    call: Call, name: str, asked: SelectBody | BinarySelect, media: MediaType
) -> Answer:
    """The same if the policy has to be loaded first, or an image to be decoded."""
    served = await call.services.policies.current(name)
    spec = served.spec.within(MAX_REQUEST_PIXELS)
    round_ = await beside_requests(spec, lambda: _round(spec, asked, media))
    return await call.services.batcher.select(served, round_)


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
    served = await services.policies.current(call.tenant_scope.full_name(name))
    check_image_count(served.spec, sum(map(context_count, asked.rounds)), "#/rounds")
    # Before contexts are decoded, which takes long where each arm has its own.
    services.selecting.check(served, [offered_arms(served.spec, each) for each in asked.rounds])
    spec, size = served.spec.within(MAX_REQUEST_PIXELS), len(call.content)
    rounds = await beside_requests(spec, lambda: _rounds(spec, asked, media), size)
    answered = await services.selecting.select(served, rounds)
    is_replay = all(each.is_replay for each in answered)
    content = await services.long_work.joined(_batch_answer(served.spec.name, answered))
    return Answer(content, headers=(REPLAYED,) if is_replay else ())


@router.post(
    "/reward",
    status_code=201,
    response_model=answers.Rewarded,
    responses={
        200: {"model": answers.Rewarded, "description": "It was already recorded"},
        **problems(403, 404, 409, has_body=True),
    },
    openapi_extra=body(requests.RewardRequest),
)
async def reward(call: Call) -> Answer:
    """Record the reward of a decision; it is durable when this answers, and counts once."""
    sent = decode(call.content, RewardBody, media_type(call.header(b"content-type")))
    check_identifier(sent.decision_id, "#/decision_id")
    appended = await call.services.rewarding.reward(
        sent.decision_id, sent.reward, call.tenant_scope
    )
    body = msgspec.json.encode(_outcome(sent.decision_id, appended))
    return Answer(body, 201 if appended.created else 200)


@router.post(
    "/reward/batch",
    response_model=answers.RewardedBatch,
    responses=problems(has_body=True),
    openapi_extra=body(requests.RewardBatchRequest),
)
async def reward_batch(call: Call) -> Answer:
    """Record many rewards; each is recorded or refused independently."""
    media = media_type(call.header(b"content-type"))
    sent = decode(call.content, RewardBatchBody, media).rewards
    for index, each in enumerate(sent):
        check_identifier(each.decision_id, f"#/rewards/{index}/decision_id")
    values = [_value(each, media, f"#/rewards/{index}/reward") for index, each in enumerate(sent)]
    reported = [
        (each.decision_id, value)
        for each, value in zip(sent, values, strict=True)
        if not isinstance(value, ServiceError)
    ]
    written = iter(await call.services.rewarding.reward_many(reported, call.tenant_scope))
    outcomes = [each if isinstance(each, ServiceError) else next(written) for each in values]
    pairs = zip(sent, outcomes, strict=True)
    answered = [_outcome(each.decision_id, found) for each, found in pairs]
    return Answer(msgspec.json.encode({"rewards": answered}))


def _value(sent: ReportedReward, media: MediaType, pointer: str) -> float | InvalidRequest:
    """A reward of a batch, or why it is none."""
    try:
        return decode(sent.reward, Finite, media, pointer)
    except InvalidRequest as refusal:
        return refusal


def _batch_answer(name: str, answered: Sequence[Answered]) -> list[bytes]:
    """The pieces of the answer to a batch."""
    rounds = [piece for each in answered for piece in (b",", each.content())]
    return [b'{"experiment":', msgspec.json.encode(name), b',"rounds":[', *rounds[1:], b"]}"]


def _rounds(
    spec: ExperimentSpec, asked: SelectBatchBody, media: MediaType
) -> list[DecisionRequest]:
    return [
        _round(spec, each, media, f"#/rounds/{index}") for index, each in enumerate(asked.rounds)
    ]


def _round(
    spec: ExperimentSpec, asked: RoundBody | BinarySelect, media: MediaType, pointer: str = "#"
) -> DecisionRequest:
    sides = sides_of(spec, asked, media, pointer)
    request_id = request_id_or_new(asked.request_id, pointer)
    return DecisionRequest(request_id, sides, is_new=asked.request_id is None)


def _outcome(decision_id: str, outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, ServiceError):
        return {"decision_id": decision_id, "status": "refused", "problem": outcome.problem()}
    return {"decision_id": decision_id, "status": outcome.status, "offset": outcome.event.offset}
