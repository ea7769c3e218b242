"""Pages of the log for people, on SQLite and on Postgres: bounded, in order, with their rewards."""

import itertools
from typing import Any

import asyncpg
import pytest
from msgspec import structs
from sqlalchemy import Select

from service.records import Domain, EventKind, Experiment
from service.storage.database import Database
from service.storage.events import browsing as module
from service.storage.events.browsing import (
    MOST_IN_A_BLOCK,
    BlockCount,
    Browsing,
    LogFilter,
    blocks_of,
)
from service.storage.events.log import EventLog
from tests.support.storage import decision, reward

ALL = LogFilter()


@pytest.fixture
def browsing(database: Database) -> Browsing:
    return Browsing(database)


async def played(event_log: EventLog, experiment: Experiment, rounds: int) -> list[str]:
    """Rounds whose odd ones are of the target, and without a reward."""
    ids = []
    for number in range(rounds):
        domain = Domain.TARGET if number % 2 else Domain.SOURCE
        new = structs.replace(decision(experiment, domain=domain), arm=f"arm-{number % 3}")
        await event_log.append([new])
        ids.append(new.event_key)
        if domain is Domain.SOURCE:
            await event_log.append([reward(experiment, new.event_key, number / rounds)])
    return ids


async def test_decisions_come_newest_first_with_their_rewards(
    browsing: Browsing, event_log: EventLog, experiment: Experiment
):
    ids = await played(event_log, experiment, 6)
    page = await browsing.page(experiment.experiment_id, 10, 100, ALL)
    assert [pair.decision.event_key for pair in page.pairs] == ids[::-1]
    assert [pair.reward for pair in page.pairs] == [None, 4 / 6, None, 2 / 6, None, 0.0]
    assert [pair.reward_offset for pair in page.pairs] == [None, 8, None, 5, None, 2]
    assert page.pairs[1].rewarded_at.utcoffset() is not None
    assert page.pairs[1].decision.context is None
    assert page.next_before is None


async def test_pages_follow_one_another_without_gap_or_overlap(
    browsing: Browsing, event_log: EventLog, experiment: Experiment
):
    ids = await played(event_log, experiment, 7)
    before: int | None = 11
    found: list[str] = []
    while before is not None:
        page = await browsing.page(experiment.experiment_id, before, 2, ALL)
        found += [pair.decision.event_key for pair in page.pairs]
        before = page.next_before
    assert found == ids[::-1]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (LogFilter(domain=Domain.TARGET), [5, 3, 1]),
        (LogFilter(arm="arm-0"), [3, 0]),
        (LogFilter(is_rewarded=True), [4, 2, 0]),
        (LogFilter(is_rewarded=False), [5, 3, 1]),
        (LogFilter(Domain.SOURCE, "arm-1", True), [4]),
        (LogFilter(arm="nobody's"), []),
    ],
)
async def test_filters_join(
    browsing: Browsing,
    event_log: EventLog,
    experiment: Experiment,
    wanted: LogFilter,
    expected: list[int],
):
    ids = await played(event_log, experiment, 6)
    page = await browsing.page(experiment.experiment_id, 10, 100, wanted)
    assert [ids.index(pair.decision.event_key) for pair in page.pairs] == expected


async def test_a_page_looks_at_a_bounded_part_of_the_log(
    database: Database, event_log: EventLog, experiment: Experiment
):
    browsing = Browsing(database, most_looked_at=20)
    await event_log.append([decision(experiment, domain=Domain.TARGET)])
    await event_log.append([decision(experiment) for _ in range(20)])
    wanted = LogFilter(domain=Domain.TARGET)
    first = await browsing.page(experiment.experiment_id, 22, 10, wanted)
    assert (first.pairs, first.next_before) == ([], 2)
    second = await browsing.page(experiment.experiment_id, 2, 10, wanted)
    assert ([pair.decision.offset for pair in second.pairs], second.next_before) == ([1], None)


async def test_blocks_count_decisions_and_rewards_by_arm(
    browsing: Browsing, event_log: EventLog, experiment: Experiment
):
    await played(event_log, experiment, 6)  # nine events
    found = await browsing.counts(experiment.experiment_id, Domain.SOURCE, [(0, 5), (5, 9)])
    chosen = EventKind.DECISION
    assert sorted(found) == [
        BlockCount(0, chosen, "arm-0", 1, 0.0),
        BlockCount(0, chosen, "arm-2", 1, 0.0),
        BlockCount(0, EventKind.REWARD, "arm-0", 1, 0.0),
        BlockCount(0, EventKind.REWARD, "arm-2", 1, 2 / 6),
        BlockCount(1, chosen, "arm-1", 1, 0.0),
        BlockCount(1, EventKind.REWARD, "arm-1", 1, 4 / 6),
    ]
    assert await browsing.counts(experiment.experiment_id, Domain.SOURCE, []) == []


@pytest.mark.parametrize("last", [0, 1, 59, 60, 61, 600, 12_000, 1_000_003])
def test_blocks_cover_a_short_log_and_sample_a_long_one(last: int):
    blocks = blocks_of(last, 60)
    assert len(blocks) <= 60
    read = sum(up_to - after for after, up_to in blocks)
    assert read == min(last, sum(min(MOST_IN_A_BLOCK, up_to - after) for after, up_to in blocks))
    assert all(0 < up_to - after <= MOST_IN_A_BLOCK for after, up_to in blocks)
    assert [up_to for _, up_to in blocks][-1:] == ([last] if last else [])
    assert all(after >= end for (_, end), (after, _) in itertools.pairwise(blocks))
    if last <= 60 * MOST_IN_A_BLOCK:
        assert read == last


async def test_postgres_reads_a_page_by_index(postgres_url: str):
    """Also before it knows any statistics, and although a kind is asked for."""
    database = await Database.open(postgres_url)
    await database.close()
    connection = await asyncpg.connect(postgres_url)
    rows = await connection.fetch(
        "EXPLAIN SELECT event_offset, (SELECT r.reward FROM events r WHERE r.kind = 'reward' "
        "AND r.event_key = events.event_key) FROM events WHERE experiment_id = 'e' AND "
        "event_offset >= 1 AND event_offset < 5001 AND kind = 'decision' "
        "ORDER BY event_offset DESC LIMIT 50"
    )
    await connection.close()
    plan = "\n".join(row[0] for row in rows)
    assert "pk_events" in plan
    assert "uq_events_kind_event_key" in plan  # of the reward alone
    assert "Seq Scan" not in plan, plan


async def test_the_query_of_the_blocks_is_built_once(
    browsing: Browsing,
    event_log: EventLog,
    experiment: Experiment,
    monkeypatch: pytest.MonkeyPatch,
):
    build = module._counted
    built: list[int] = []

    def counted(number: int) -> Select[*tuple[Any, ...]]:
        built.append(number)
        return build(number)

    monkeypatch.setattr(module, "_counted", counted)
    module._counts.cache_clear()
    for rounds in (6, 3):
        await played(event_log, experiment, rounds)
        for domain in Domain:
            last = await event_log.last_offset(experiment.experiment_id)
            blocks = blocks_of(last, 3)
            await browsing.counts(experiment.experiment_id, domain, blocks)
    assert built == [0, 1, 2]
