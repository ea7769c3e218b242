"""Manual acts as events of the log, with their author and reason."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import Request

from service.codec.bodies import AuditBody, request_id_or_new
from service.records import Appended, EventKind, NewEvent, acted_by
from service.routes import body_of, caller_of


@dataclass(frozen=True, slots=True)
class Audit:
    """The request id, author and reason of a manual act, and the caller's key."""

    request_id: str
    by: str | None
    reason: str | None
    key_id: str | None

    def event(
        self, experiment_id: str, kind: EventKind, facts: Mapping[str, Any], request_hash: str
    ) -> NewEvent:
        """The act as an event; a repeated request id is the same act."""
        payload = {**facts, "by": self.by, "reason": self.reason, **acted_by(self.key_id)}
        return NewEvent(
            experiment_id,
            kind,
            f"{experiment_id}:{self.request_id}",
            payload=json.dumps(payload).encode(),
            request_hash=request_hash,
        )


async def audit_of(request: Request) -> Audit:
    """The optional body of a manual act."""
    has_body = bool(await request.body())
    body = await body_of(request, AuditBody) if has_body else AuditBody()
    request_id = request_id_or_new(body.request_id)
    return Audit(request_id, body.by, body.reason, (await caller_of(request)).key_id)


def outcome(appended: Appended) -> dict[str, Any]:
    """The offset of the act in the log, and whether it was already recorded."""
    status = "created" if appended.created else "already_recorded"
    return {"offset": appended.event.offset, "status": status}
