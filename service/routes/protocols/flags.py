"""OpenFeature remote evaluation (OFREP): an experiment is a flag, an arm is a variant.

The flag `NAME` asks the source: the decision explores, is logged, and its reward may follow. The flag
`NAME@target` asks the frozen target policy and writes nothing; so does the evaluation of all flags.
"""

import hashlib
from typing import Annotated

import msgspec
from fastapi import APIRouter, Header, Request, Response

from service.auth.access import Access
from service.auth.keys import Caller
from service.auth.tenants import public_name
from service.codec.bodies import MediaType
from service.codec.protocols import flags, schemas
from service.codec.protocols.flags import Context, Flag, SourceAnswer
from service.deciding.policies import Served
from service.deciding.select import DecisionRequest
from service.deciding.target import TargetAnswer
from service.errors import (
    EvaluationRefused,
    ExperimentArchived,
    ExperimentPaused,
    UnknownExperiment,
)
from service.http.dialects import flag_error
from service.records import Status
from service.routes import CallerDep, ServicesDep, beside_requests, json_answer, served_of
from service.routes.documentation import body, errors_as
from service.services import Services

router = APIRouter(prefix="/ofrep/v1/evaluate/flags", tags=["openfeature"])
TARGET = "@target"
MAX_FLAGS = 100
BODY = body(schemas.FlagEvaluationRequest, structured=(MediaType.JSON,))


@router.post(
    "/{key}",
    response_model=schemas.FlagEvaluation,
    responses=errors_as(schemas.FlagError, 400, 404, 409, has_body=True),
    openapi_extra=BODY,
)
async def evaluate_flag(
    key: str, request: Request, services: ServicesDep, caller: CallerDep
) -> Response:
    """Decide for a user: in the source, or by the target policy if the key ends in `@target`."""
    name, is_target = key.removesuffix(TARGET), key.endswith(TARGET)
    (Access.TARGET if is_target else Access.SELECT).check(caller)
    context = flags.context_of(await request.body())
    served = await served_of(name, services, caller)
    evaluate = _target_flag if is_target else _source_flag
    return json_answer(await evaluate(key, served, context, services))


@router.post(
    "",
    response_model=schemas.FlagEvaluations,
    responses={
        304: {"description": "The answer with this `ETag` still holds"},
        **errors_as(schemas.FlagError, 400, has_body=True),
    },
    openapi_extra=BODY,
)
async def evaluate_flags(
    request: Request,
    services: ServicesDep,
    caller: CallerDep,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Every active experiment as `NAME@target`; nothing is written."""
    context = flags.context_of(await request.body())
    found = await services.experiments.list(caller.tenant_scope)
    names = [public_name(each.name) for each in found if each.status is Status.ACTIVE]
    if len(names) > MAX_FLAGS:
        raise EvaluationRefused(
            f"One request evaluates at most {MAX_FLAGS} flags: use a key for fewer experiments.",
            errorCode="GENERAL",
        )
    made = [await _flag_or_error(name, context, services, caller) for name in names]
    return _cacheable(msgspec.json.encode({"flags": made}), if_none_match)


def _cacheable(content: bytes, known: str | None) -> Response:
    """The content with its `ETag`, or 304 if the caller has it."""
    tag = f'"{hashlib.sha256(content).hexdigest()}"'
    if tag in [each.strip().removeprefix("W/") for each in (known or "").split(",")]:
        return Response(status_code=304, headers={"ETag": tag})
    return Response(content, headers={"ETag": tag}, media_type=MediaType.JSON)


async def _source_flag(key: str, served: Served, context: Context, services: Services) -> Flag:
    """A decision of the source; the same user gets the same one under the same policy."""
    user, spec = flags.targeting_key(context), served.spec
    sides = await beside_requests(spec, lambda: flags.source_sides(spec, context))
    round_ = DecisionRequest("", sides)
    request_id = flags.request_id(user, served.version, round_.digest({}))
    try:
        (answered,) = await services.selecting.select(served, [DecisionRequest(request_id, sides)])
    except (ExperimentPaused, ExperimentArchived):
        return flags.disabled_flag(key)
    found = msgspec.json.decode(answered.content(), type=SourceAnswer)
    return flags.source_flag(key, spec, found.policy_version, found.source)


async def _target_flag(key: str, served: Served, context: Context, services: Services) -> Flag:
    spec = served.spec
    rows = await beside_requests(spec, lambda: flags.target_context(spec, context))
    _, (content,) = await services.target_selecting.select(
        served, rows, None, None, TargetAnswer.json_parts
    )
    decision = msgspec.json.decode(content)
    return flags.target_flag(key, spec, served.version, decision)


async def _flag_or_error(name: str, context: Context, services: Services, caller: Caller) -> Flag:
    key = f"{name}{TARGET}"
    try:
        return await _target_flag(key, await served_of(name, services, caller), context, services)
    except (EvaluationRefused, UnknownExperiment) as error:
        return flag_error(key, error.problem())
