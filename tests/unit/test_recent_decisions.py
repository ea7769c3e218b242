"""The newest decisions are remembered, the oldest forgotten."""

from service.recent_decisions import Owner, RecentDecisions


def test_the_oldest_is_forgotten_first():
    recent = RecentDecisions(capacity=2)
    for decision_id in ("a", "b", "c"):
        recent.add(decision_id, Owner("e-1", "doses"))
    assert recent.owner("a") is None
    assert recent.owner("b") == recent.owner("c") == Owner("e-1", "doses")
