"""Acts by hand: who did what and why, as events of the log."""

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
    """What a caller says beside an act, and the key that it came with."""

    request_id: str
    by: str | None
    reason: str | None
    key_id: str | None

    def event(
        self, experiment_id: str, kind: EventKind, facts: Mapping[str, Any], request_hash: str
    ) -> NewEvent:
        """The act as an event; the same id again is the same act."""
        said = {**facts, "by": self.by, "reason": self.reason, **acted_by(self.key_id)}
        return NewEvent(
            experiment_id,
            kind,
            f"{experiment_id}:{self.request_id}",
            payload=json.dumps(said).encode(),
            request_hash=request_hash,
        )


async def audit_of(request: Request) -> Audit:
    """The body of an act by hand, which may be left out."""
    has_body = bool(await request.body())
    told = await body_of(request, AuditBody) if has_body else AuditBody()
    request_id = request_id_or_new(told.request_id)
    return Audit(request_id, told.by, told.reason, (await caller_of(request)).key_id)


def outcome(appended: Appended) -> dict[str, Any]:
    """Where the act stands in the log, and whether it was there before."""
    status = "created" if appended.created else "already_recorded"
    return {"offset": appended.event.offset, "status": status}
