"""Decisions under new ids: appended by one statement on Postgres, with the rules of all others."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from msgspec import structs

from service.errors import ExperimentPaused, InvalidRequest, UnknownExperiment
from service.records import Domain, Experiment, NewEvent, Status, StoredEvent, uuid7
from service.storage.database import Database
from service.storage.events.append_plan import AppendCall
from service.storage.events.log import EventLog, write
from service.storage.events.postgres import MAX_BYTES, fit_one_statement
from service.storage.experiments import Experiments
from tests.support.storage import append_decision, decision, opened_log, outcome, reward


def new_decision(experiment: Experiment, **fields: Any) -> NewEvent:
    made = decision(experiment, request_id=uuid7(), **fields)
    return structs.replace(made, has_new_key=True, has_new_request=True)


async def log_of(event_log: EventLog, experiment: Experiment) -> list[StoredEvent]:
    return await event_log.read(experiment.experiment_id, after=0, limit=10_000)


@pytest.mark.parametrize("count", [1, 2, 31, 200])
async def test_they_are_read_as_they_were_appended(
    event_log: EventLog, experiment: Experiment, count: int
):
    await append_decision(event_log, experiment)
    odd = structs.replace(
        new_decision(experiment, domain=Domain.TARGET, context=bytes(range(256))), arm="שלום 🎲"
    )
    bare = structs.replace(new_decision(experiment), context=None, request_hash=None)
    new = [*(new_decision(experiment) for _ in range(count - 1)), odd, bare][:count]
    appended = await event_log.append(new)
    read = await log_of(event_log, experiment)
    assert read[1:] == [each.event for each in appended]
    assert all(each.created for each in appended)
    assert [each.offset for each in read] == list(range(1, count + 2))
    kept = set(NewEvent.__struct_fields__) & set(StoredEvent.__struct_fields__)
    for stored, asked in zip(read[1:], new, strict=True):
        assert all(getattr(stored, name) == getattr(asked, name) for name in kept)
        assert stored.created_at >= read[0].created_at
    assert await event_log.last_offset(experiment.experiment_id) == count + 1


async def test_each_call_of_a_statement_has_its_own_answer(
    database: Database, event_log: EventLog, experiment: Experiment
):
    events = [new_decision(experiment) for _ in range(6)]
    calls = [
        AppendCall(tuple(events[:2])),
        AppendCall(tuple(events[2:5])),
        AppendCall(tuple(events[5:])),
    ]
    answers = await write(database, calls)
    read = await log_of(event_log, experiment)
    assert [each.event_key for each in read] == [each.event_key for each in events]
    for answer, expected in zip(answers, (read[:2], read[2:5], read[5:]), strict=True):
        assert isinstance(answer, list)
        assert [each.event for each in answer] == expected


async def test_many_callers_share_a_statement_and_each_has_its_own(
    event_log: EventLog, experiment: Experiment
):
    asked = [[new_decision(experiment) for _ in range(1 + index % 3)] for index in range(20)]
    results = await asyncio.gather(*(event_log.append(each) for each in asked))
    for new, appended in zip(asked, results, strict=True):
        assert [each.event.event_key for each in appended] == [each.event_key for each in new]
    offsets = [each.event.offset for appended in results for each in appended]
    assert sorted(offsets) == list(range(1, len(offsets) + 1))


async def test_a_statement_writes_to_several_experiments(
    database: Database, event_log: EventLog, experiment: Experiment, experiments: Experiments
):
    other = await experiments.create("other", "{}")
    await append_decision(event_log, other)
    asked = [
        [new_decision(experiment)],
        [new_decision(other), new_decision(other)],
        [new_decision(experiment), new_decision(experiment)],
        [new_decision(other)],
    ]
    answers = await write(database, [AppendCall(tuple(each)) for each in asked])
    read = {each.experiment_id: await log_of(event_log, each) for each in (experiment, other)}
    assert [each.offset for each in read[experiment.experiment_id]] == [1, 2, 3]
    assert [each.offset for each in read[other.experiment_id]] == [1, 2, 3, 4]
    for new, answer in zip(asked, answers, strict=True):
        assert isinstance(answer, list)
        assert [each.event.event_key for each in answer] == [each.event_key for each in new]
        assert all(each.event in read[each.event.experiment_id] for each in answer)


async def test_a_paused_experiment_leaves_the_others_theirs(
    database: Database, event_log: EventLog, experiment: Experiment, experiments: Experiments
):
    other = await experiments.create("other", "{}")
    await experiments.set_status(other.name, Status.PAUSED)
    calls = [AppendCall((new_decision(each),)) for each in (experiment, other, experiment)]
    first, refused, last = await write(database, calls)
    assert isinstance(refused, ExperimentPaused)
    assert isinstance(first, list)
    assert isinstance(last, list)
    assert [first[0].event.offset, last[0].event.offset] == [1, 2]
    assert await log_of(event_log, other) == []


async def test_experiments_and_kinds_may_be_mixed(
    event_log: EventLog, experiment: Experiment, experiments: Experiments
):
    other = await experiments.create("other", "{}")
    known = await append_decision(event_log, experiment)
    mixed: list[Sequence[NewEvent]] = [
        [new_decision(experiment)],
        [new_decision(other), new_decision(other)],
        [reward(experiment, known)],
        [new_decision(experiment)],
    ]
    await asyncio.gather(*(event_log.append(each) for each in mixed))
    for each, count in ((experiment, 4), (other, 2)):
        offsets = [event.offset for event in await log_of(event_log, each)]
        assert offsets == list(range(1, count + 1))


async def test_a_request_that_is_named_after_a_new_one_is_answered_as_that(
    event_log: EventLog, experiment: Experiment
):
    new = new_decision(experiment)
    await event_log.append([new])
    again = decision(experiment, request_id=new.request_id)
    (appended,) = await event_log.append([again])
    assert (appended.event.event_key, appended.created) == (new.event_key, False)


async def test_a_reward_may_wait_in_the_same_batch(event_log: EventLog, experiment: Experiment):
    new = new_decision(experiment)
    rewarded = reward(experiment, new.event_key)
    _, (appended,) = await asyncio.gather(event_log.append([new]), event_log.append([rewarded]))
    assert (appended.event.offset, appended.event.arm) == (2, "low")


@pytest.mark.parametrize("count", [1, 32])
async def test_a_paused_experiment_takes_none(
    event_log: EventLog, experiment: Experiment, experiments: Experiments, count: int
):
    await experiments.set_status(experiment.name, Status.PAUSED)
    with pytest.raises(ExperimentPaused):
        await event_log.append([new_decision(experiment) for _ in range(count)])
    assert await log_of(event_log, experiment) == []
    await experiments.set_status(experiment.name, Status.ACTIVE)
    await event_log.append([new_decision(experiment)])
    assert await event_log.last_offset(experiment.experiment_id) == 1


async def test_an_unknown_experiment_takes_none(event_log: EventLog, experiment: Experiment):
    with pytest.raises(UnknownExperiment):
        await event_log.append([structs.replace(new_decision(experiment), experiment_id="none")])


async def test_what_cannot_be_stored_fails_its_caller_alone(
    event_log: EventLog, experiment: Experiment
):
    wrong = structs.replace(new_decision(experiment), arm="a\ud800")
    asked = [[new_decision(experiment)], [wrong], [new_decision(experiment)]]
    results = await asyncio.gather(*(outcome(event_log.append(each)) for each in asked))
    assert isinstance(results[1], InvalidRequest)
    assert len(await log_of(event_log, experiment)) == 2


@pytest.fixture
async def second_log(postgres_url: str) -> AsyncIterator[EventLog]:
    async with opened_log(postgres_url) as log:
        yield log


async def test_two_processes_leave_no_gap(postgres_url: str, second_log: EventLog):
    async with opened_log(postgres_url) as first:
        experiments = Experiments(first._database)
        made = [await experiments.create(f"doses-{number}", "{}") for number in range(3)]

        async def append(log: EventLog, order: Sequence[Experiment]) -> None:
            """Batches of all experiments, here in one order and there in the other."""
            for _ in range(25):
                await asyncio.gather(
                    *(log.append([new_decision(each) for _ in range(3)]) for each in order)
                )

        await asyncio.gather(append(first, made), append(second_log, made[::-1]))
        for experiment in made:
            read = await log_of(first, experiment)
            assert [event.offset for event in read] == list(range(1, 151))
            times = [event.created_at for event in read]
            assert times == sorted(times)


@pytest.mark.parametrize("count", [1, 256])
@pytest.mark.parametrize("number", [1, 3])
async def test_they_need_no_other_statement(
    postgres_url: str,
    second_log: EventLog,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    number: int,
):
    def transaction(*_: object) -> Any:
        raise AssertionError("a transaction of several statements")

    experiments = Experiments(second_log._database)
    made = [await experiments.create(f"doses-{each}", "{}") for each in range(number)]
    monkeypatch.setattr("service.storage.events.postgres.transaction", transaction)
    async with opened_log(postgres_url) as log:
        calls = [AppendCall(tuple(new_decision(each) for _ in range(count))) for each in made]
        await write(log._database, calls)
        for each in made:
            assert await log.last_offset(each.experiment_id) == count
        with pytest.raises(AssertionError):
            await write(log._database, [AppendCall((decision(made[0]),))])


async def test_much_of_them_is_sent_in_parts(event_log: EventLog, experiment: Experiment):
    large = [new_decision(experiment, context=bytes(MAX_BYTES // 32)) for _ in range(32)]
    assert not fit_one_statement([AppendCall(tuple(large))])
    assert fit_one_statement([AppendCall(tuple(large[1:]))])
    await event_log.append(large)
    assert [each.context for each in await log_of(event_log, experiment)] == [
        each.context for each in large
    ]


@pytest.mark.parametrize("arm", ["a\x1fb", "", "{}", "NULL", '"'])
async def test_odd_names_of_arms_are_kept(event_log: EventLog, experiment: Experiment, arm: str):
    odd = structs.replace(new_decision(experiment), arm=arm)
    bare = structs.replace(new_decision(experiment), arm=None, policy_version=None)
    new = [new_decision(experiment), odd, bare]
    await event_log.append(new)
    read = await log_of(event_log, experiment)
    assert [each.arm for each in read] == ["low", arm, None]
    assert [each.policy_version for each in read] == [3, 3, None]
