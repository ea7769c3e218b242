"""The source rounds that are nearest to contexts of the target, as the encoder sees them."""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Request, Response
from msgspec import Meta, Raw

from service.codec import requests
from service.codec.bodies import ABSENT, Identifier, MediaType, TargetSelectBody, decode, media_type
from service.codec.decisions import payload_of
from service.codec.log_answers import NearestRounds
from service.codec.plain_contexts import plain_context
from service.codec.target_contexts import TargetRows, target_rows
from service.deciding.nearest import Finding, Nearest, Neighbour
from service.deciding.policies import Served
from service.errors import refuse
from service.images.decoding import MAX_REQUEST_PIXELS
from service.routes import ServedDep, ServicesDep, beside_requests, json_answer
from service.routes.documentation import body, problems
from service.services import Services

MOST_ROUNDS = 100  # of an answer: each has its context

router = APIRouter(prefix="/experiments/{name}", tags=["experiments"])


class NearestBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /experiments/{name}/nearest: one `context` or many `contexts`."""

    context: Raw = ABSENT
    contexts: Raw = ABSENT
    eligible_arms: list[Identifier] | None = None
    count: Annotated[int, Meta(ge=1, le=20)] = 3


@router.post(
    "/nearest",
    response_model=NearestRounds,
    responses=problems(404, has_body=True),
    openapi_extra=body(requests.NearestRequest),
)
async def show_nearest(request: Request, served: ServedDep, services: ServicesDep) -> Response:
    """The source rounds nearest to target contexts in the encoder's latent space, with arm and reward.

    They come from a sample: at most 1,000 of the newest rewarded source rounds that the policy has learned
    from, within 5,000 events. Nothing is stored.
    """
    media = media_type(request.headers.get("content-type"))
    asked = decode(await request.body(), NearestBody, media)
    groups = await beside_requests(served.spec, lambda: _rows(served, asked, media))
    return json_answer(await nearest_answer(services, served, groups, asked.count))


def _rows(served: Served, asked: NearestBody, media: MediaType) -> list[TargetRows]:
    spec = served.spec.within(MAX_REQUEST_PIXELS)
    given = TargetSelectBody(
        experiment=spec.name,
        context=asked.context,
        contexts=asked.contexts,
        eligible_arms=asked.eligible_arms,
    )
    found = target_rows(spec, given, media)
    if sum(len(each.rows) for each in found) * asked.count > MOST_ROUNDS:
        refuse(f"Contexts times `count` are at most {MOST_ROUNDS}.", "#/contexts")
    return found


async def nearest_answer(
    services: Services, served: Served, groups: list[TargetRows], count: int
) -> dict[str, Any]:
    """The nearest rounds, as answered."""
    finding = Finding(services.browsing, services.event_log, services.target_selecting)
    found = await finding.nearest(served, groups, count)
    offsets = [each.decision.offset for each in found.sample.rounds]
    return {
        "experiment": served.spec.name,
        "policy_version": served.version,
        "encoder_version": served.policy.version.encoder_version,
        "sampled": len(offsets),
        "first_offset": min(offsets, default=None),
        "last_offset": max(offsets, default=None),
        "contexts": [
            {"nearest": [_round(served, found, each) for each in some]} for some in found.neighbours
        ],
    }


def _round(served: Served, found: Nearest, neighbour: Neighbour) -> dict[str, Any]:
    decision, reward, *_ = found.sample.rounds[neighbour.row]
    return {
        "decision_id": decision.event_key,
        "offset": decision.offset,
        "distance": neighbour.distance,
        "arm": decision.arm,
        "reward": reward,
        "row_id": payload_of(decision).row_id,
        "context": plain_context(served.spec, found.sample.contexts[neighbour.row]),
    }
