"""Ids, clocks and the records' own rules."""

import uuid
from datetime import UTC

import pytest
from hypothesis import given, strategies as st

from service.records import (
    Appended,
    EventKind,
    Experiment,
    NewEvent,
    Phase,
    SnapshotRecord,
    Status,
    StoredEvent,
    StoredSnapshot,
    phase_event,
    utc_now,
    uuid7,
    uuid7s,
)


@given(st.integers(0, 2**48 - 1))
def test_an_id_is_a_uuid_of_version_seven_that_carries_its_time(milliseconds: int):
    made = uuid.UUID(uuid7(milliseconds))
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == milliseconds


def test_ids_differ_and_sort_by_time():
    assert len({uuid7(5) for _ in range(1000)}) == 1000
    assert uuid7(5) < uuid7(6)


def test_many_ids_at_once_are_as_good_and_rise():
    made = uuid7s(1000)
    assert made == sorted(set(made))
    assert len(made) == 1000
    assert {uuid.UUID(each).version for each in made} == {7}
    assert uuid7(0) < made[0] < uuid7(2**48 - 1)


def test_the_clock_knows_its_zone():
    assert utc_now().tzinfo is UTC


def test_an_experiment_has_one_event_that_changes_its_phase():
    event = phase_event("e-1")
    assert (event.kind, event.event_key) == (EventKind.PHASE, "e-1:continued")


def test_records_do_not_change():
    event = NewEvent("e-1", EventKind.DECISION, "d-1")
    with pytest.raises(AttributeError):
        event.arm = "low"  # type: ignore[misc]


def test_a_stored_event_has_all_that_a_new_one_has():
    new = set(NewEvent.__struct_fields__)
    stored = set(StoredEvent.__struct_fields__)
    assert stored - new == {"offset", "created_at", "decision"}
    assert new - stored == {"has_new_key", "has_new_request"}  # of no use once they are stored
    assert Appended._fields == ("event", "created")


def test_log_contexts_hold_nothing_that_callers_sent():
    secret, now = "canary", utc_now()
    records = (
        Experiment("e-1", "doses", secret, Phase.ZERO_SHOT, Status.ACTIVE, 1, 1, 0, now),
        SnapshotRecord("e-1", 1, 7, 1, 0, secret, secret, 5, False, now, {"note": secret}),
    )
    for record in records:
        payload = str(record.log_context())
        assert payload != "{}"
        assert secret not in payload


def test_a_snapshot_knows_whether_its_bytes_are_whole():
    digest = "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9"
    record = SnapshotRecord("e-1", 1, 7, 1, 0, "", digest, 11, False, utc_now(), {})
    assert StoredSnapshot(record, b"hello world").is_intact
    assert not StoredSnapshot(record, b"hello World").is_intact
