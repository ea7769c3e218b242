"""A backup of the command line, made while selects and rewards run, restored elsewhere."""

import asyncio
from pathlib import Path

from service.storage.database import Database
from service.storage.experiments import Experiments
from tests.e2e.conftest import Adopt
from tests.support.processes.daband import Daband, Server
from tests.support.processes.history import (
    NAME,
    Clients,
    History,
    check_order,
    idle_state,
    read_log,
)
from tests.support.storage import PATIENT, sqlite_url
from tests.support.waiting import eventually

ROUNDS_A_SECOND = 40
BEFORE = 30  # rounds that are acknowledged when the backup begins, at least


async def command(folder: Path, *words: str) -> None:
    """Run a command to its end."""
    process = Daband(folder, *words)
    process.start()
    assert await asyncio.to_thread(process.wait) == 0, process.tail()


async def test_all_that_was_acknowledged_before_a_backup_is_in_it(
    folder: Path, adopt: Adopt[Daband]
):
    server, file, elsewhere = Server(folder), folder / "backup.gz", folder / "elsewhere"
    adopt(server)
    server.start()
    await server.ready()
    history, is_over = History(), asyncio.Event()
    async with Clients([server.url], history) as clients:
        await clients.create_experiment()
        playing = asyncio.create_task(clients.offer(ROUNDS_A_SECOND, until=is_over))
        await eventually(lambda: len(history.rewarded) >= BEFORE, server)
        decided, rewarded = dict(history.decided), dict(history.rewarded)
        await command(folder, "backup", "--data-dir", str(folder / "data"), str(file))
        done = len(history.rewarded)
        await eventually(lambda: len(history.rewarded) > done, server)
        is_over.set()
        await playing
    place = ("--data-dir", str(elsewhere))
    await command(folder, "migrate", *place)
    await command(folder, "restore", *place, str(file))
    async with Database.opened(sqlite_url(elsewhere / "daband.db"), PATIENT) as database:
        log = await read_log(database, await Experiments(database).get(NAME))
    check_order(log)
    keys = {event.event_key for event in log}
    sides = [body[side] for body in decided.values() for side in ("source", "target")]
    assert {side["decision_id"] for side in sides} <= keys
    assert {event.event_key: event.offset for event in log if event.reward is not None}.items() >= (
        rewarded.items()
    )
    restored = Server(folder, DATABASE_URL=sqlite_url(elsewhere / "daband.db"))
    adopt(restored)
    restored.start()
    await restored.ready()
    await idle_state(restored.url, restored)
    restored.stop()
    await command(folder, "replay", NAME, *place)
