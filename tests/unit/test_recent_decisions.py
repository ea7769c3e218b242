"""The newest decisions are remembered, the oldest forgotten."""

from service.recent_decisions import Owner, RecentDecisions
from service.records import EventKind, StoredEvent, utc_now


def decision(decision_id: str) -> StoredEvent:
    return StoredEvent(
        experiment_id="e-1",
        offset=1,
        kind=EventKind.DECISION,
        event_key=decision_id,
        payload=b"",
        context=None,
        request_id=None,
        request_hash=None,
        domain=None,
        arm=None,
        reward=None,
        policy_version=None,
        created_at=utc_now(),
    )


def test_the_oldest_is_forgotten_first():
    recent = RecentDecisions(capacity=2)
    for decision_id in ("a", "b", "c"):
        recent.add(decision(decision_id), "doses")
    assert recent.owner("a") is None
    assert recent.owner("b") == recent.owner("c") == Owner("e-1", "doses")
