"""Costs that must not grow with the log: what a select does, and what replay does for an event."""

import cProfile
import json
import pstats
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence, Sized
from pathlib import Path

import asyncpg
import pytest
from msgspec.structs import replace

from benchmarks import log_scale
from benchmarks.log_scale import arm_cost, running_app, select_once
from benchmarks.long_log import linear_spec, made_events, write_log
from model.learner import Learner
from service.learning.fold import Folder
from service.records import EventKind, StoredEvent
from service.storage.database import Database
from service.storage.events.log import EventLog
from service.storage.events.rows import chunks
from tests.support.api import running_api
from tests.support.learning import create
from tests.support.measuring import Measured
from tests.support.storage import PATIENT, migrated, sqlite_url

SHORT, LONG = 1_000, 20_000


async def rows_read(postgres_url: str) -> int:
    """Rows of the log that were read by all connections that have ended, whether they were wanted or not."""
    connection = await asyncpg.connect(postgres_url)
    rows = await connection.fetchval(
        "SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_user_tables WHERE relname = 'events'"
    )
    await connection.close()
    return int(rows)


@pytest.mark.slow
async def test_a_select_costs_the_same_after_many_events(tmp_path: Path, measured: Measured):
    # `python -m benchmarks.log_scale` measures 10^6; a scan of the log would show here already.
    url = sqlite_url(tmp_path / "daband.db")
    await migrated(url)
    database = await Database.open(url, PATIENT)
    for name, count in (("short", SHORT), ("long", LONG)):
        await write_log(database, linear_spec(name), count)
    await database.close()
    costs: dict[str, list[float]] = {"short": [], "long": []}
    async with running_app(url) as http:
        for number in range(60):
            for name, taken in costs.items():
                started = time.process_time()
                await select_once(http, name, number)
                taken.append(time.process_time() - started)
    short, long = (statistics.median(taken[10:]) for taken in costs.values())
    measured.at_most("CPU of a select, long log to short", long / short, 2.0)


async def test_postgres_reads_few_rows_for_a_request_though_its_plans_began_with_an_empty_log(
    postgres_url: str,
):
    # Nothing is analysed meanwhile: a plan that was right for the first request would stay.
    count = 400
    async with running_api(postgres_url, poll_seconds=3600.0) as api:
        await create(api)
        for number in range(count):
            decision_id = await api.decide(request_id=f"r-{number}")
            assert (await api.reward(decision_id)).status_code == 201
    assert (
        0 < await rows_read(postgres_url) < 20 * count
    )  # a walk through the log would read count² / 2 of them and more


Search = Callable[[EventLog, Sequence[StoredEvent]], Awaitable[Sized]]
SEARCHES: dict[str, Search] = {
    "page": lambda log, some: log.read(some[0].experiment_id, some[0].offset - 1, len(some)),
    "decisions": lambda log, some: log.find_decisions([each.event_key for each in some]),
    "rewards": lambda log, some: log.find_rewards(
        some[0].experiment_id, [each.event_key for each in some]
    ),
    "offsets": lambda log, some: log.events_at(
        some[0].experiment_id, [each.offset for each in some]
    ),
}


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
async def test_postgres_reads_few_rows_for_a_list_of_events_before_the_table_is_analysed(
    postgres_url: str, search: Search
):
    count, size = 4_000, 50
    database = await Database.open(postgres_url, PATIENT)
    experiment = await write_log(database, linear_spec("fresh"), count)
    log = EventLog(database)
    whole = await log.read(experiment.experiment_id, 0, count)
    found = sum([len(await search(log, some)) for some in chunks(whole, size)])
    await database.close()
    assert found >= count / 2
    assert await rows_read(postgres_url) < 10 * found  # over IN lists: 80 times the log


@pytest.mark.slow
def test_a_decision_costs_in_proportion_to_the_arms(measured: Measured):
    few, many = arm_cost(400, 20), arm_cost(4_000, 20)
    # Ten times the arms; a cost in K² would be 100 times.
    measured.at_most("CPU of a decision, 4,000 arms to 400", many / few, 25.0)


def rounds(count: int) -> list[StoredEvent]:
    """Events of a log as they are read: rewards with their decisions."""
    found = list(made_events("x", linear_spec("long"), count))
    decisions = {each.event_key: each for each in found if each.kind is EventKind.DECISION}
    return [
        replace(each, decision=decisions[each.event_key]) if each.kind is EventKind.REWARD else each
        for each in found
    ]


def test_replay_calls_few_functions_an_event():
    count = 4_000
    spec = linear_spec("long", episode_length=10**9)
    folder = Folder(Learner(spec.bandit_config(), spec.seed), spec)
    log = rounds(count)
    profile = cProfile.Profile()
    profile.runcall(folder.fold, log)
    calls = pstats.Stats(profile).total_calls  # type: ignore[attr-defined]
    assert calls / count < 25  # one round after the other took 60


@pytest.mark.slow
def test_the_cost_of_a_long_log_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "scale.json"
    log_scale.main(["--quick", "--json", str(file)])
    figures = json.loads(file.read_text())["figures"]
    assert figures["replay, events a second"] > 0
    shown = capsys.readouterr().out
    assert "restart of the trainer" in shown
    assert "long ÷ short" in shown
