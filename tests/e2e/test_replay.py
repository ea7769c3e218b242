"""`daband replay` proves that what is served is a function of the log, and finds out what is not."""

from pathlib import Path
from typing import Any

from daband_client import AsyncClient
from service.storage.database import Database
from service.storage.experiments import Experiments
from service.storage.snapshots import Snapshots
from tests.e2e.conftest import Adopt
from tests.support.processes.daband import Daband, Server
from tests.support.processes.history import NAME, Clients, History, idle_state, state
from tests.support.storage import PATIENT, flip_a_bit, sqlite_url

ENCODERS = 5
ROUNDS_AT_ONCE = 16
MOST_ROUNDS = 2000


class Proven:
    """A trained service, and `daband replay` on its database."""

    def __init__(self, folder: Path, adopt: Adopt[Daband], url: str, **stores: str) -> None:
        self._folder = folder
        self._stores = stores
        self.url = url
        self.server = Server(folder, LEASE_SECONDS=1, **stores)
        adopt(self.server)

    async def learn(self, encoders: int) -> dict[str, Any]:
        """Play until `encoders` encoders were activated in total and the service is idle."""
        async with Clients([self.server.url], History(), prefix=f"to-{encoders}") as clients:
            await clients.create_experiment()
            for _ in range(MOST_ROUNDS // ROUNDS_AT_ONCE):
                await clients.play(ROUNDS_AT_ONCE)
                found = await idle_state(self.server.url, self.server)
                if found["encoder_version"] >= encoders:
                    return found
        raise AssertionError(f"too few encoders: {found}")

    def replay(self) -> tuple[int, str]:
        """Exit code and output of the command."""
        data_dir = str(self._folder / "data")
        command = Daband(self._folder, "replay", NAME, "--data-dir", data_dir, **self._stores)
        command.start()
        return command.wait(), command.tail()


async def check_replay(proven: Proven) -> None:
    """Equal after many encoders and after a restore, different after one bit was changed.

    When what a restore goes back to has changed there is no telling, and it says so.
    """
    proven.server.start()
    await proven.server.ready()
    learned = await proven.learn(ENCODERS)
    code, output = proven.replay()
    assert code == 0, output
    assert f"offset   {learned['head_offset']}" in output

    restored = await restore_an_encoder(proven.server.url)
    encoders = int((await state(proven.server.url))["encoder_version"])
    await proven.learn(encoders + 3)
    code, output = proven.replay()
    assert code == 0, output

    await tamper(proven.url, restored)
    code, output = proven.replay()
    assert code == 2, output
    assert f"needs version {restored}, which is damaged" in output
    await tamper(proven.url, restored)  # whole again

    await tamper(proven.url)
    code, output = proven.replay()
    assert code == 1, output
    assert "different" in output


async def test_replay_proves_the_snapshot_on_sqlite(folder: Path, adopt: Adopt[Daband]):
    await check_replay(Proven(folder, adopt, sqlite_url(folder / "data" / "daband.db")))


async def test_replay_proves_the_snapshot_on_postgres(
    folder: Path, adopt: Adopt[Daband], postgres_url: str, redis_url: str
):
    stores = {"DATABASE_URL": postgres_url, "REDIS_URL": redis_url}
    await check_replay(Proven(folder, adopt, postgres_url, **stores))


async def restore_an_encoder(url: str) -> int:
    """Roll back to an earlier encoder; the version of its snapshot."""
    async with AsyncClient(url) as client:
        kept = await client.snapshots(NAME)
        earlier = next(each for each in reversed(kept) if each.encoder_version == 2)
        await client.restore(NAME, earlier.version)
    return int(earlier.version)


async def tamper(database_url: str, version: int | None = None) -> None:
    """Change one bit of a snapshot, by default of the newest."""
    async with Database.opened(database_url, PATIENT) as database:
        experiment = await Experiments(database).get(NAME)
        newest = await Snapshots(database).list(experiment.experiment_id, limit=1)
        await flip_a_bit(database, experiment.experiment_id, version or newest[0].version)
