"""The newest decisions are remembered, in memory that does not grow."""

import tracemalloc

from service.deciding.select import Owner, RecentDecisions

OWNER = Owner("e-1", "doses")


def test_a_decision_is_remembered_until_another_takes_its_place():
    recent = RecentDecisions(capacity=1)
    recent.add(["a"], OWNER)
    assert recent.owner("a") == OWNER
    recent.add(["b"], OWNER)
    assert recent.owner("b") == OWNER
    assert recent.owner("a") is None


def test_a_decision_that_was_never_made_is_not_known():
    recent = RecentDecisions(capacity=8)
    assert recent.owner("") is None
    recent.add(["a"], OWNER)
    assert all(recent.owner(str(number)) is None for number in range(1000))


def test_most_of_the_newest_decisions_are_remembered():
    recent = RecentDecisions(capacity=1024)
    ids = [f"d-{number}" for number in range(4096)]
    recent.add(ids, OWNER)
    # An id keeps its place with probability (1 - 1/1024) for every later one: 94 % on average.
    assert sum(recent.owner(decision_id) is not None for decision_id in ids[-128:]) > 100


def test_remembering_takes_no_memory_beyond_that_of_the_start():
    recent = RecentDecisions(capacity=4096)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(20_000):
            recent.add([f"d-{number}"], OWNER)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 16_384
