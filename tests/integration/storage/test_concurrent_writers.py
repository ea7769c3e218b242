"""Several writers on one database: nothing is skipped, nothing is written twice."""

import asyncio
import sys

from service.errors import TargetRewardForbidden
from service.records import Domain, EventKind, Experiment, StoredEvent, phase_event
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments
from tests.support.storage import append_decision, decision, opened_log, outcome, reward

WRITERS = 2
EVENTS_A_WRITER = 200


async def worker(url: str, experiment: Experiment) -> list[str]:
    """The keys that another process has appended."""
    arguments = (url, experiment.experiment_id, str(EVENTS_A_WRITER))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.processes.append_worker",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode().split()


async def follow(log: EventLog, experiment: Experiment, count: int) -> list[StoredEvent]:
    """What a reader sees that always goes on after the newest offset it has seen."""
    seen: list[StoredEvent] = []
    while len(seen) < count:
        after = seen[-1].offset if seen else 0
        read = await log.read(experiment.experiment_id, after=after, limit=7)
        if not read:
            await asyncio.sleep(0.005)  # the writers need the time
        seen += read
    return seen


async def test_a_reader_skips_nothing_while_two_processes_append(
    database_url: str, event_log: EventLog, experiment: Experiment
):
    total = WRITERS * EVENTS_A_WRITER
    reader = asyncio.create_task(follow(event_log, experiment, total))
    written = await asyncio.gather(*(worker(database_url, experiment) for _ in range(WRITERS)))
    seen = await reader
    assert [event.offset for event in seen] == list(range(1, total + 1))
    assert {event.event_key for event in seen} == {key for keys in written for key in keys}


async def test_rewards_that_race_on_two_databases_are_created_once(
    database_url: str, event_log: EventLog, experiment: Experiment
):
    async with opened_log(database_url) as other:
        for _ in range(5):
            decision_id = await append_decision(event_log, experiment)
            results = await asyncio.gather(
                *(log.append([reward(experiment, decision_id)]) for log in (event_log, other) * 10)
            )
            assert sum(one.created for (one,) in results) == 1


async def test_requests_that_race_on_two_databases_get_one_decision(
    database_url: str, event_log: EventLog, experiment: Experiment
):
    async with opened_log(database_url) as other:
        for name in ("r-1", "r-2", "r-3"):
            results = await asyncio.gather(
                *(
                    log.append([decision(experiment, request_id=name)])
                    for log in (event_log, other) * 5
                )
            )
            assert len({one.event.event_key for (one,) in results}) == 1


async def test_no_target_reward_is_logged_before_the_phase_opens(
    database_url: str, event_log: EventLog, experiment: Experiment
):
    targets = [
        await append_decision(event_log, experiment, domain=Domain.TARGET) for _ in range(40)
    ]
    async with opened_log(database_url) as other:
        early, late = targets[:20], targets[20:]
        results = await asyncio.gather(
            *(outcome(event_log.append([reward(experiment, key)])) for key in early),
            other.append([phase_event(experiment.experiment_id)]),
            *(outcome(other.append([reward(experiment, key)])) for key in late),
        )
    refused = [each for each in results if isinstance(each, TargetRewardForbidden)]
    events = await event_log.read(experiment.experiment_id, after=40, limit=100)
    assert events[0].kind is EventKind.PHASE
    assert len(events) - 1 + len(refused) == len(targets)
    assert {event.kind for event in events[1:]} <= {EventKind.REWARD}


async def test_two_logs_that_lock_two_experiments_do_not_deadlock(
    database_url: str, event_log: EventLog, experiment: Experiment, experiments: Experiments
):
    other_experiment = await experiments.create("other", "{}")
    async with opened_log(database_url) as other:
        both = (experiment, other_experiment)
        await asyncio.gather(
            *(append_decision(event_log, each) for each in both * 20),
            *(append_decision(other, each) for each in both[::-1] * 20),
        )
    for each in both:
        assert await event_log.last_offset(each.experiment_id) == 40
