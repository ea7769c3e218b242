"""Every problem has one shape."""

import pytest

from service.errors import (
    InvalidRequest,
    RateLimited,
    ServiceError,
    StaleEpoch,
    StorageUnavailable,
    Unavailable,
    problem_types,
)

NEEDED = {
    "experiment-exists": 409,
    "experiment-paused": 409,
    "invalid-request": 422,
    "not-ready": 503,
    "overloaded": 503,
    "payload-too-large": 413,
    "request-conflict": 409,
    "reward-conflict": 409,
    "stale-epoch": 409,
    "storage-unavailable": 503,
    "target-reward-forbidden": 403,
    "unknown-decision": 404,
    "unknown-experiment": 404,
    "unknown-snapshot": 404,
    "unsupported-media-type": 415,
    "version-conflict": 409,
}


def test_the_problems_that_callers_rely_on_have_their_status():
    statuses = {slug: kind.status for slug, kind in problem_types().items()}
    assert NEEDED.items() <= statuses.items()


@pytest.mark.parametrize("kind", problem_types().values(), ids=lambda kind: kind.slug)
def test_a_problem_explains_itself(kind: type[ServiceError]):
    body = kind().problem()
    assert set(body) == {"type", "title", "status", "detail"}
    assert body["type"] == f"/problems/{kind.slug}"
    assert body["detail"] == kind.__doc__ == str(kind())
    assert body["detail"].endswith(".")


def test_facts_become_members_and_cannot_hide_the_standard_ones():
    body = StaleEpoch(epoch=3, current_epoch=4, status=200).problem()
    assert (body["epoch"], body["current_epoch"], body["status"]) == (3, 4, 409)


def test_a_detail_may_be_given():
    assert InvalidRequest("A reward is a number.").problem()["detail"] == "A reward is a number."


def test_what_passes_says_when_to_come_back():
    assert StorageUnavailable().retry_after_seconds == 1
    assert RateLimited(5).retry_after_seconds == 5
    assert InvalidRequest().retry_after_seconds is None
    assert all(
        (kind.status == 503) is issubclass(kind, Unavailable) for kind in problem_types().values()
    )
