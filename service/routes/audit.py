"""Manual acts as events of the log, with their author and reason."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import Request

from service.auth.tenants import public_name
from service.codec.bodies import AuditBody, request_id_or_new
from service.records import Actor, EventKind, Experiment, NewEvent
from service.routes import body_of, caller_of
from service.services import Services


@dataclass(frozen=True, slots=True)
class Audit:
    """The request id of a manual act, and who carries it out."""

    request_id: str
    actor: Actor

    def event(
        self, experiment_id: str, kind: EventKind, facts: Mapping[str, Any], request_hash: str
    ) -> NewEvent:
        """The act as an event; a repeated request id is the same act."""
        return NewEvent(
            experiment_id,
            kind,
            f"{experiment_id}:{self.request_id}",
            payload=json.dumps({**facts, **self.actor.details()}).encode(),
            request_hash=request_hash,
        )


async def audit_of(request: Request) -> Audit:
    """The optional body of a manual act."""
    has_body = bool(await request.body())
    body = await body_of(request, AuditBody) if has_body else AuditBody()
    key_id = (await caller_of(request)).key_id
    return Audit(request_id_or_new(body.request_id), Actor(body.by, body.reason, key_id))


async def logged(services: Services, experiment: Experiment, event: NewEvent) -> dict[str, Any]:
    """Write an act to the log and wake the trainer; as answered."""
    (appended,) = await services.event_log.append([event])
    services.bus.wake(experiment.name)
    return {
        "experiment": public_name(experiment.name),
        "offset": appended.event.offset,
        "status": appended.status,
    }
