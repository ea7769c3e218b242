"""The hot routes: select and reward, one and many."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, Protocol

from fastapi import APIRouter, Query

from service import request_schemas, schemas
from service.batch_bodies import BatchBody
from service.bodies import (
    BINARY,
    STRUCTURED,
    MediaType,
    RewardBatchBody,
    RewardBody,
    SelectBody,
    decode,
    media_type,
)
from service.contexts import binary_side, sides_of
from service.decision_codec import Side
from service.errors import ServiceError
from service.invalid import check_identifier
from service.json_buffer import JsonBuffer
from service.policies import Served
from service.records import Domain, uuid7, uuid7s
from service.rewarding import Outcome
from service.routes.documentation import body, problems
from service.routes.hot import Answer, Begin, Call, Header, HotRoute, Reply, begun_by
from service.selecting import Answered, Round

REPLAYED: tuple[Header, ...] = ((b"idempotent-replayed", b"true"),)

router = APIRouter(tags=["decisions"], route_class=HotRoute)

READABLE = (*STRUCTURED, *BINARY)
_encode = JsonBuffer().encode

Text = Annotated[str | None, Query(description="with a binary body, which has no room for it")]
Arms = Annotated[list[str] | None, Query(description="with a binary body: the arms of its rows")]


class _Reader(Protocol):
    """Reads the bodies of selects under one head."""

    def read(self, content: bytes) -> tuple[str, Any]:
        """The experiment's name, and what was asked."""

    def round(self, served: Served, asked: Any) -> Round:
        """The round that was asked for, once the experiment is known."""


class _StructuredReader(NamedTuple):
    """Bodies that say everything themselves."""

    media: MediaType

    def read(self, content: bytes) -> tuple[str, SelectBody]:
        asked = decode(content, SelectBody, self.media)
        return check_identifier(asked.experiment, "#/experiment"), asked

    def round(self, served: Served, asked: SelectBody) -> Round:
        return _round(asked.request_id, sides_of(served.spec, asked, self.media))


class _BinaryReader(NamedTuple):
    """Bodies that are contexts and nothing else; the query says the rest."""

    media: MediaType
    experiment: str
    request_id: str | None
    domain: Domain
    arms: list[str] | None

    def read(self, content: bytes) -> tuple[str, bytes]:
        return self.experiment, content

    def round(self, served: Served, content: bytes) -> Round:
        side = binary_side(served.spec, self.domain, content, self.media, self.arms)
        return _round(self.request_id, (side,))


def _reader(
    call: Call,
    experiment: str | None = None,
    request_id: str | None = None,
    domain: Domain = Domain.SOURCE,
    eligible_arms: list[str] | None = None,
) -> _Reader:
    media = media_type(call.header(b"content-type"), READABLE)
    if media not in BINARY:
        return _StructuredReader(media)
    name = check_identifier(experiment or "", "#/experiment")
    return _BinaryReader(media, name, request_id, domain, eligible_arms)


def _selected(answered: Answered) -> Answer:
    return Answer(_encode(answered.body), headers=REPLAYED if answered.is_replay else ())


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


def _select_begins(head: Call, **query: Any) -> Begin:
    """The same as `select`, for replies."""
    reader = _reader(head, **query)

    def begin(call: Call, reply: Reply) -> None:
        services = call.services
        name, asked = reader.read(call.content)
        served = services.policies.known(call.realm.full_name(name))
        if served is None:
            reply.later(select(call, **query))
        else:
            services.turn_selecting.join(served, reader.round(served, asked), _Asker(reply))

    return begin


@router.post(
    "/select",
    response_model=schemas.Selected,
    responses=problems(404, 409, has_body=True),
    openapi_extra=body(request_schemas.SelectRequest, is_binary=True),
)
@begun_by(_select_begins)
async def select(
    call: Call,
    experiment: Text = None,
    request_id: Text = None,
    domain: Domain = Domain.SOURCE,
    eligible_arms: Arms = None,
) -> Answer:
    """Decide one round; the decisions are durable when this answers."""
    reader = _reader(call, experiment, request_id, domain, eligible_arms)
    name, asked = reader.read(call.content)
    served = await call.services.policies.current(call.realm.full_name(name))
    round_ = reader.round(served, asked)
    return _selected(await call.services.turn_selecting.select(served, round_))


@router.post(
    "/select/batch",
    response_model=schemas.SelectedBatch,
    responses=problems(404, 409, has_body=True),
    openapi_extra=body(request_schemas.SelectBatchRequest),
)
async def select_batch(call: Call) -> Answer:
    """Decide many rounds under one policy; all are written or none."""
    services = call.services
    media = media_type(call.header(b"content-type"))
    asked = BatchBody(call.content, media)
    name = check_identifier(asked.experiment, "#/experiment")
    served = await services.policies.current(call.realm.full_name(name))
    sides = asked.sides(served.spec)
    new_id = iter(uuid7s(len(sides))).__next__
    rounds = [
        _round(request_id, some, f"#/rounds/{index}", new_id)
        for index, (request_id, some) in enumerate(zip(asked.request_ids, sides, strict=True))
    ]
    answered = await services.selecting.select(served, rounds)
    return Answer(_encode(_batch(served, answered)), headers=_headers(answered))


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
async def reward(call: Call) -> Answer:
    """Record the reward of a decision; it is durable when this answers, and counts once."""
    told = decode(call.content, RewardBody, media_type(call.header(b"content-type")))
    check_identifier(told.decision_id, "#/decision_id")
    appended = await call.services.rewarding.reward(told.decision_id, told.reward, call.realm)
    body = _encode(_outcome(told.decision_id, appended))
    return Answer(body, 201 if appended.created else 200)


@router.post(
    "/reward/batch",
    response_model=schemas.RewardedBatch,
    responses=problems(has_body=True),
    openapi_extra=body(request_schemas.RewardBatchRequest),
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


def _round(
    request_id: str | None,
    sides: tuple[Side, ...],
    pointer: str = "#",
    new_id: Callable[[], str] = uuid7,
) -> Round:
    if request_id is None:
        return Round(new_id(), sides, is_new=True)
    return Round(check_identifier(request_id, f"{pointer}/request_id"), sides)


def _headers(answered: list[Answered]) -> tuple[Header, ...]:
    return REPLAYED if all(each.is_replay for each in answered) else ()


def _batch(served: Served, answered: list[Answered]) -> dict[str, Any]:
    return {"experiment": served.spec.name, "rounds": [each.body for each in answered]}


def _outcome(decision_id: str, outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, ServiceError):
        return {"decision_id": decision_id, "status": "refused", "problem": outcome.problem()}
    status = "created" if outcome.created else "already_recorded"
    return {"decision_id": decision_id, "status": status, "offset": outcome.event.offset}
