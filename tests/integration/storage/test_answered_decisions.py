"""Decisions that were answered before they were written are still written exactly once."""

import pytest
from msgspec import structs

from service.errors import ExperimentPaused, ServiceError
from service.records import Experiment, NewEvent, Status, uuid7
from service.storage.database import Database
from service.storage.events.append_plan import AppendCall
from service.storage.events.log import EventLog, write
from service.storage.experiments import Experiments
from tests.support.processes.faulty_proxy import Fault, FaultyProxy
from tests.support.storage import PATIENT_COMMIT, decision, opened_log, reward
from tests.support.waiting import eventually


def new_decision(experiment: Experiment) -> NewEvent:
    made = decision(experiment, request_id=uuid7())
    return structs.replace(made, has_new_key=True, has_new_request=True)


async def keys(log: EventLog, experiment: Experiment) -> list[str]:
    stored = await log.read(experiment.experiment_id, after=0, limit=1000)
    assert [event.offset for event in stored] == list(range(1, len(stored) + 1))
    return [event.event_key for event in stored]


@pytest.mark.parametrize("status", [Status.PAUSED, Status.ARCHIVED])
async def test_a_pause_does_not_lose_what_was_answered_before(
    database: Database, experiments: Experiments, experiment: Experiment, status: Status
):
    log, lost = EventLog(database, PATIENT_COMMIT), list[ServiceError]()
    answered = [new_decision(experiment) for _ in range(99)]
    for event in answered:
        log.append_later([event], lost.append)
    await experiments.set_status(experiment.name, status)
    await log.close()
    assert await keys(log, experiment) == [event.event_key for event in answered]
    assert (lost, log.unwritten_count) == ([], 0)


async def test_beside_them_a_paused_experiment_takes_none(
    database: Database, experiments: Experiments, experiment: Experiment
):
    await experiments.set_status(experiment.name, Status.PAUSED)
    answered, waiting = new_decision(experiment), new_decision(experiment)
    calls = [AppendCall((answered,), is_answered=True), AppendCall((waiting,))]
    written, refused = await write(database, calls)
    assert isinstance(written, list)
    assert isinstance(refused, ExperimentPaused)
    assert await keys(EventLog(database), experiment) == [answered.event_key]


@pytest.mark.parametrize("is_paused", [False, True])
async def test_sent_again_they_are_written_once(
    database: Database, experiments: Experiments, experiment: Experiment, is_paused: bool
):
    calls = [
        AppendCall((new_decision(experiment), new_decision(experiment)), is_answered=True)
        for _ in range(3)
    ]
    await write(database, calls[:2])
    if is_paused:
        await experiments.set_status(experiment.name, Status.PAUSED)
    outcomes = await write(database, [call.repeated() for call in calls])
    answers = [outcome for outcome in outcomes if isinstance(outcome, list)]
    created = [[each.created for each in answer] for answer in answers]
    assert created == [[False, False], [False, False], [True, True]]
    asked = [event.event_key for call in calls for event in call.events]
    assert await keys(EventLog(database), experiment) == asked


async def test_a_write_with_an_unknown_outcome_is_not_repeated_in_the_log(postgres_url: str):
    port = int(postgres_url.rpartition(":")[2].partition("/")[0])
    async with opened_log(postgres_url) as direct, FaultyProxy(port).running() as proxy:
        experiment = await Experiments(direct._database).create("doses", "{}")
        url = postgres_url.replace(f":{port}/", f":{proxy.port}/")
        async with opened_log(url) as log:
            await log.append([new_decision(experiment)])
            lost: list[ServiceError] = []
            event = new_decision(experiment)
            proxy.mark, proxy.fault = event.event_key.encode(), Fault.RESET_AFTER
            log.append_later([event], lost.append)
            await eventually(lambda: proxy.strikes == 1 and log.unwritten_count == 0)
            (rewarded,) = await log.append([reward(experiment, event.event_key)])
        assert (rewarded.event.offset, lost) == (3, [])
        assert (await keys(direct, experiment)).count(event.event_key) == 2  # with its reward
