"""The event log's contract, on SQLite and on Postgres."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import sqlalchemy as sa
from msgspec import structs
from sqlalchemy.ext.asyncio import AsyncConnection

from service.errors import (
    ExperimentPaused,
    InvalidRequest,
    RequestConflict,
    RewardConflict,
    StaleEpoch,
    TargetRewardForbidden,
    UnknownDecision,
    UnknownExperiment,
)
from service.records import (
    Domain,
    EventKind,
    Experiment,
    NewEvent,
    Phase,
    Status,
    StoredEvent,
    phase_event,
)
from service.storage import tables
from service.storage.database import Database
from service.storage.events import sqlite
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments
from service.storage.leases import Leases
from tests.support.storage import append_decision, decision, find_request, outcome, reward


async def test_offsets_are_consecutive_from_one(event_log: EventLog, experiment: Experiment):
    for _ in range(3):
        await event_log.append([decision(experiment), decision(experiment)])
    events = await event_log.read(experiment.experiment_id, after=0, limit=100)
    assert [event.offset for event in events] == [1, 2, 3, 4, 5, 6]
    assert await event_log.last_offset(experiment.experiment_id) == 6


async def test_what_is_read_is_what_was_appended(event_log: EventLog, experiment: Experiment):
    new = decision(experiment, request_id="r-1")
    (appended,) = await event_log.append([new])
    (read,) = await event_log.read(experiment.experiment_id, after=0, limit=1)
    assert read == appended.event
    kept = set(NewEvent.__struct_fields__) & set(StoredEvent.__struct_fields__)
    assert all(getattr(read, name) == getattr(new, name) for name in kept)
    assert read.created_at.utcoffset() is not None


async def test_many_at_once_are_read_as_they_were_appended(
    event_log: EventLog, experiment: Experiment
):
    plain = [decision(experiment, request_id=f"r-{index}") for index in range(40)]
    odd = [
        structs.replace(decision(experiment, domain=Domain.TARGET), arm="שלום 🎲", payload=b""),
        structs.replace(
            decision(experiment, request_id="e\u0301" * 40), payload=bytes(range(256)) * 5
        ),
        structs.replace(decision(experiment), context=None, request_hash=None),
        structs.replace(decision(experiment), domain=None, arm=None, policy_version=None),
        structs.replace(decision(experiment), policy_version=2**63 - 1, context=b"\xff" * 3136),
    ]
    new = [*plain, *odd, *(reward(experiment, each.event_key, 0.1) for each in plain)]
    appended = await event_log.append(new)
    read = await event_log.read(experiment.experiment_id, after=0, limit=100)
    assert [structs.replace(each, decision=None) for each in read] == [a.event for a in appended]
    assert [event.offset for event in read] == list(range(1, len(new) + 1))
    for event, received in zip(read[:45], new, strict=False):
        fields = set(NewEvent.__struct_fields__) & set(StoredEvent.__struct_fields__)
        assert all(getattr(event, name) == getattr(received, name) for name in fields)
    assert {event.reward for event in read[45:]} == {0.1}


async def test_times_are_kept_as_other_tables_keep_theirs(
    database: Database, event_log: EventLog, experiment: Experiment
):
    (appended,) = await event_log.append([decision(experiment)])

    async def copy_and_compare(connection: AsyncConnection) -> bool:
        kept = appended.event.created_at
        await connection.execute(sa.update(tables.experiments).values(created_at=kept))
        joined = tables.events.c.created_at == tables.experiments.c.created_at
        return bool(await connection.scalar(sa.select(sa.exists().where(joined))))

    assert await database.write(copy_and_compare)


def test_times_of_other_zones_are_kept_as_utc():
    moment = datetime(2026, 11, 16, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    assert sqlite.moment_to_sqlite(moment) == "2026-11-15 23:30:00.000000"


async def test_every_experiment_has_offsets_of_its_own(
    event_log: EventLog, experiments: Experiments, experiment: Experiment
):
    other = await experiments.create("other", "{}")
    await asyncio.gather(*(append_decision(event_log, each) for each in (experiment, other) * 5))
    for each in (experiment, other):
        events = await event_log.read(each.experiment_id, after=0, limit=100)
        assert [event.offset for event in events] == [1, 2, 3, 4, 5]


async def test_concurrent_appends_leave_no_gap(event_log: EventLog, experiment: Experiment):
    appended = await asyncio.gather(
        *(event_log.append([decision(experiment)] * 1) for _ in range(600))
    )
    assert sorted(one.event.offset for (one,) in appended) == list(range(1, 601))


async def test_reading_goes_on_after_an_offset_and_stops_at_another(
    event_log: EventLog, experiment: Experiment
):
    await event_log.append([decision(experiment) for _ in range(10)])
    page = await event_log.read(experiment.experiment_id, after=3, limit=4)
    assert [event.offset for event in page] == [4, 5, 6, 7]
    page = await event_log.read(experiment.experiment_id, after=7, limit=4, up_to=8)
    assert [event.offset for event in page] == [8]


async def test_a_reward_is_read_with_its_decision_and_context(
    event_log: EventLog, experiment: Experiment
):
    first = await append_decision(event_log, experiment, context=b"first")
    second = await append_decision(event_log, experiment, context=b"second")
    await event_log.append([reward(experiment, second), reward(experiment, first, 0.5)])
    for after in (0, 2):
        *_, one, two = await event_log.read(experiment.experiment_id, after=after, limit=10)
        assert one.decision is not None
        assert two.decision is not None
        assert (one.decision.event_key, one.decision.context) == (second, b"second")
        assert (two.decision.event_key, two.decision.context) == (first, b"first")


async def test_a_reward_takes_arm_and_domain_from_its_decision(
    event_log: EventLog, experiment: Experiment
):
    decision_id = await append_decision(event_log, experiment)
    (appended,) = await event_log.append([reward(experiment, decision_id)])
    assert (appended.event.arm, appended.event.domain) == ("low", Domain.SOURCE)
    assert appended.event.policy_version == 3


async def test_the_same_request_again_gets_the_same_decisions(
    event_log: EventLog, experiment: Experiment
):
    def both() -> list[NewEvent]:
        return [decision(experiment, domain=domain, request_id="r-1") for domain in Domain]

    first = await event_log.append(both())
    second = await event_log.append(both())
    assert [one.created for one in first + second] == [True, True, False, False]
    assert [one.event.event_key for one in first] == [one.event.event_key for one in second]
    assert await event_log.last_offset(experiment.experiment_id) == 2


async def test_a_request_id_with_another_body_is_refused(
    event_log: EventLog, experiment: Experiment
):
    await append_decision(event_log, experiment, request_id="r-1", request_hash="one")
    with pytest.raises(RequestConflict):
        await append_decision(event_log, experiment, request_id="r-1", request_hash="two")
    with pytest.raises(RequestConflict):
        await append_decision(
            event_log, experiment, request_id="r-1", request_hash="one", domain=Domain.TARGET
        )
    assert await event_log.last_offset(experiment.experiment_id) == 1


async def test_two_experiments_may_use_the_same_request_id(
    event_log: EventLog, experiments: Experiments, experiment: Experiment
):
    other = await experiments.create("other", "{}")
    await append_decision(event_log, experiment, request_id="r-1", request_hash="one")
    await append_decision(event_log, other, request_id="r-1", request_hash="two")


async def test_a_batch_with_known_and_new_requests_creates_the_new_ones(
    event_log: EventLog, experiment: Experiment
):
    await append_decision(event_log, experiment, request_id="r-1")
    results = await event_log.append(
        [decision(experiment, request_id=name) for name in ("r-2", "r-1", "r-3")]
    )
    assert [(one.created, one.event.offset) for one in results] == [
        (True, 2),
        (False, 1),
        (True, 3),
    ]


async def test_concurrent_requests_with_one_id_make_one_decision(
    event_log: EventLog, experiment: Experiment
):
    results = await asyncio.gather(
        *(event_log.append([decision(experiment, request_id="r-1")]) for _ in range(20))
    )
    assert sum(one.created for (one,) in results) == 1
    assert len({one.event.event_key for (one,) in results}) == 1


async def test_an_append_is_written_all_or_not_at_all(event_log: EventLog, experiment: Experiment):
    with pytest.raises(UnknownDecision):
        await event_log.append([decision(experiment), reward(experiment, "nobody")])
    assert await event_log.last_offset(experiment.experiment_id) == 0


async def test_twenty_concurrent_rewards_of_a_decision_create_one(
    event_log: EventLog, experiment: Experiment
):
    decision_id = await append_decision(event_log, experiment)
    results = await asyncio.gather(
        *(event_log.append([reward(experiment, decision_id)]) for _ in range(20))
    )
    assert sum(one.created for (one,) in results) == 1
    assert {one.event.offset for (one,) in results} == {2}


async def test_a_second_reward_with_another_value_is_refused(
    event_log: EventLog, experiment: Experiment
):
    decision_id = await append_decision(event_log, experiment)
    await event_log.append([reward(experiment, decision_id, 0.25)])
    with pytest.raises(RewardConflict):
        await event_log.append([reward(experiment, decision_id, 0.5)])
    (_, kept) = await event_log.read(experiment.experiment_id, after=0, limit=10)
    assert kept.reward == 0.25


async def test_a_reward_without_its_decision_is_refused(
    event_log: EventLog, experiments: Experiments, experiment: Experiment
):
    other = await experiments.create("other", "{}")
    decision_id = await append_decision(event_log, other)
    for unknown in ("nobody", decision_id):
        with pytest.raises(UnknownDecision):
            await event_log.append([reward(experiment, unknown)])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
async def test_a_reward_that_is_no_number_is_refused(
    event_log: EventLog, experiment: Experiment, value: float | None
):
    decision_id = await append_decision(event_log, experiment)
    with pytest.raises(InvalidRequest):
        await event_log.append([structs.replace(reward(experiment, decision_id), reward=value)])


async def test_a_target_reward_is_refused_until_the_phase_opens(
    event_log: EventLog, experiments: Experiments, experiment: Experiment
):
    decision_id = await append_decision(event_log, experiment, domain=Domain.TARGET)
    with pytest.raises(TargetRewardForbidden):
        await event_log.append([reward(experiment, decision_id)])
    assert await event_log.last_offset(experiment.experiment_id) == 1

    await event_log.append([phase_event(experiment.experiment_id)])
    assert (await experiments.get("doses")).phase is Phase.CONTINUED
    (appended,) = await event_log.append([reward(experiment, decision_id)])
    assert appended.created
    (again,) = await event_log.append([phase_event(experiment.experiment_id)])
    assert not again.created


async def test_a_paused_experiment_takes_rewards_and_repeats_but_no_new_decision(
    event_log: EventLog, experiments: Experiments, experiment: Experiment
):
    decision_id = await append_decision(event_log, experiment, request_id="r-1")
    await experiments.set_status("doses", Status.PAUSED)
    with pytest.raises(ExperimentPaused):
        await append_decision(event_log, experiment)
    assert await append_decision(event_log, experiment, request_id="r-1") == decision_id
    await event_log.append([reward(experiment, decision_id)])
    await experiments.set_status("doses", Status.ACTIVE)
    await append_decision(event_log, experiment)


async def test_an_unknown_experiment_is_refused(event_log: EventLog, experiment: Experiment):
    unknown = replace(experiment, experiment_id="nobody")
    with pytest.raises(UnknownExperiment):
        await append_decision(event_log, unknown)
    with pytest.raises(UnknownExperiment):
        await event_log.last_offset("nobody")
    assert await event_log.read("nobody", after=0, limit=10) == []


async def test_an_old_trainers_event_is_refused(
    event_log: EventLog, leases: Leases, experiment: Experiment
):
    lease = await leases.acquire(experiment.experiment_id, "trainer")
    assert lease is not None
    event = NewEvent(experiment.experiment_id, EventKind.ACTIVATION, "encoder-1")
    with pytest.raises(StaleEpoch):
        await event_log.append([event], epoch=lease.epoch - 1)
    (appended,) = await event_log.append([event], epoch=lease.epoch)
    assert appended.created


async def test_other_events_are_written_once_a_key(event_log: EventLog, experiment: Experiment):
    event = NewEvent(experiment.experiment_id, EventKind.CONTEXTS, "upload-1", request_hash="a")
    (first,) = await event_log.append([event])
    (second,) = await event_log.append([event])
    assert (first.created, second.created) == (True, False)
    with pytest.raises(RequestConflict):
        await event_log.append([structs.replace(event, request_hash="b")])


async def test_the_refusal_of_one_caller_does_not_affect_others(
    event_log: EventLog, experiment: Experiment
):
    decision_id = await append_decision(event_log, experiment)
    results = await asyncio.gather(
        event_log.append([decision(experiment)]),
        event_log.append([reward(experiment, "nobody")]),
        event_log.append([reward(experiment, decision_id, 1.0)]),
        event_log.append([reward(experiment, decision_id, 0.0)]),
        event_log.append([decision(experiment)]),
        return_exceptions=True,
    )
    kinds = [type(each) for each in results]
    assert kinds == [list, UnknownDecision, list, RewardConflict, list]
    assert await event_log.last_offset(experiment.experiment_id) == 4


@pytest.mark.parametrize("others", [1, 40])
@pytest.mark.parametrize("bad", [{"arm": "\ud800"}, {"policy_version": 2**70}])
async def test_a_value_that_cannot_be_stored_fails_its_caller_alone(
    event_log: EventLog, experiment: Experiment, bad: dict[str, Any], others: int
):
    calls = [decision(experiment) for _ in range(others + 1)]
    calls[-1] = structs.replace(calls[-1], **bad)
    results = await asyncio.gather(*(outcome(event_log.append([each])) for each in calls))
    assert all(isinstance(each, list) for each in results[:-1])
    assert type(results[-1]) is InvalidRequest
    assert await event_log.last_offset(experiment.experiment_id) == others


async def test_cancelled_callers_do_not_disturb_the_others(
    event_log: EventLog, experiment: Experiment
):
    calls = [asyncio.create_task(event_log.append([decision(experiment)])) for _ in range(60)]
    for number, call in enumerate(calls[::2]):
        if number % 5 == 0:  # some before their batch is taken, some while it is written
            await asyncio.wait({calls[1]}, timeout=0)
        call.cancel()
    done = await asyncio.gather(*calls[1::2])
    offsets = {one.event.offset for (one,) in done}
    events = await event_log.read(experiment.experiment_id, after=0, limit=100)
    assert [event.offset for event in events] == list(range(1, len(events) + 1))
    assert len(offsets) == 30
    assert offsets <= {event.offset for event in events}


async def test_one_key_in_two_experiments_at_once_is_kept_once(
    event_log: EventLog, experiments: Experiments, experiment: Experiment
):
    other = await experiments.create("other", "{}")
    mine = decision(experiment)
    theirs = structs.replace(decision(other), event_key=mine.event_key)
    results = await asyncio.gather(
        outcome(event_log.append([mine])), outcome(event_log.append([theirs]))
    )
    assert isinstance(results[0], list)
    assert isinstance(results[1], RequestConflict)


async def test_events_are_found_by_offset_with_their_contexts(
    event_log: EventLog, experiment: Experiment
):
    await event_log.append([decision(experiment, context=b"%d" % n) for n in range(1, 700)])
    await event_log.append([NewEvent(experiment.experiment_id, EventKind.REFUSAL, "e-1")])
    found = await event_log.events_at(experiment.experiment_id, range(90, 900))
    assert {offset: event.context for offset, event in found.items()} == {
        **{offset: b"%d" % offset for offset in range(90, 700)},
        700: None,
    }


async def test_decisions_and_requests_are_found_by_id(event_log: EventLog, experiment: Experiment):
    decision_id = await append_decision(event_log, experiment, request_id="r-1")
    found = await event_log.find_decision(decision_id)
    assert found is not None
    assert found.payload == b"payload"
    assert [
        each.event_key for each in await find_request(event_log, found.experiment_id, "r-1")
    ] == [decision_id]
    assert await event_log.find_decision("nobody") is None
    assert await find_request(event_log, found.experiment_id, "r-2") == []


async def test_ids_are_opaque_text(event_log: EventLog, experiment: Experiment):
    for name in ("'; DROP TABLE events; --", "שלום 🎲", "é", "e\u0301"):
        await append_decision(event_log, experiment, request_id=name)
        (found,) = await find_request(event_log, experiment.experiment_id, name)
        assert found.request_id == name


async def test_an_append_for_two_experiments_is_a_programming_error(
    event_log: EventLog, experiment: Experiment
):
    other = replace(experiment, experiment_id="other")
    with pytest.raises(ValueError, match="one experiment"):
        await event_log.append([decision(experiment), decision(other)])
    assert await event_log.append([]) == []
