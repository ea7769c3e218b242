"""Archiving holds up no select: it locks an experiment for one short transaction a file, which stays short."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from service.records import Experiment
from service.storage.archive import archiving, returning
from service.storage.archive.manifest import enter
from service.storage.archive.next_rounds import ArchivingOptions
from service.storage.database import Database
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments
from tests.support.archives import SMALL, archive
from tests.support.storage import PATIENT, decision, opened_log, reward

Step = Callable[..., Awaitable[None]]
STEPS = (
    *((archiving, name) for name in ("insert_requests", "_delete")),
    *((returning, name) for name in ("_insert_missing", "_executed")),
)


@pytest.fixture
async def database(postgres_url: str, tmp_path: Path) -> AsyncIterator[Database]:
    place = str(tmp_path / "archive")
    opened = await Database.open(postgres_url, dataclasses.replace(PATIENT, archive_place=place))
    yield opened
    await opened.close()


async def play(log: EventLog, experiment: Experiment, rounds: int) -> None:
    new = [decision(experiment, request_id=f"r-{number}") for number in range(rounds)]
    await log.append(new)
    await log.append([reward(experiment, each.event_key) for each in new])


async def test_decisions_and_rewards_are_written_inside_every_other_step(
    database: Database,
    postgres_url: str,
    experiments: Experiments,
    monkeypatch: pytest.MonkeyPatch,
):
    experiment = await experiments.create("doses", "{}")
    passed: set[str] = set()

    async with opened_log(postgres_url) as log:
        await play(log, experiment, 12)

        def held(name: str, step: Step) -> Step:
            async def then_selected(*arguments: Any) -> None:
                await step(*arguments)  # its transaction is open until this function ends
                new = decision(experiment)
                await log.append([new])
                await log.append([reward(experiment, new.event_key)])
                passed.add(name)

            return then_selected

        for module, name in STEPS:
            monkeypatch.setattr(module, name, held(name, getattr(module, name)))
        await archive(database, experiment)
        await returning.Returning(database, SMALL, partial(asyncio.sleep, 0)).run(experiment)
    assert passed == {name for _, name in STEPS}


async def entered(database: Database, experiment: Experiment, options: ArchivingOptions) -> int:
    """The statements of the transactions that enter files, a file, after archiving all that can be."""
    counts: list[int] = []

    async def counted(connection: Any, *arguments: Any) -> None:
        counts.append(0)
        engine = connection.engine.sync_engine

        def count(*_: Any) -> None:
            counts[-1] += 1

        sa.event.listen(engine, "before_cursor_execute", count)
        try:
            await enter(connection, *arguments)
        finally:
            sa.event.remove(engine, "before_cursor_execute", count)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(archiving, "enter", counted)
        await archive(database, experiment, options=options)
    assert len(set(counts)) == 1
    return counts[0]


async def test_the_transaction_that_locks_takes_no_more_statements_for_a_longer_file(
    database: Database, event_log: EventLog, experiments: Experiments
):
    taken = []
    for name, size in (("short", 4), ("long", 100)):
        experiment = await experiments.create(name, "{}")
        await play(event_log, experiment, 60)
        options = dataclasses.replace(SMALL, segment_events=size)
        taken.append(await entered(database, experiment, options))
    assert taken == [4, 4]
