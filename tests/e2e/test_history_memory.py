"""A table of a million past rounds: checked, imported and learned from with bounded memory on both sides."""

from functools import partial
from pathlib import Path

import psutil
import pytest

from daband_client import Client, ProblemError
from tests.e2e.test_upload_memory import MEBIBYTE, Watch
from tests.support.measuring import Measured
from tests.support.processes.service import ServiceProcess
from tests.support.waiting import wait_until

ROWS = 1_000_000
SERVICE_LIMIT = 300 * MEBIBYTE
CLIENT_LIMIT = 16 * MEBIBYTE  # the file is larger
COLUMNS = [
    {"name": "age", "type": "numeric"},
    {"name": "strain", "type": "categorical", "values": ["B6", "BALB"]},
]


SMALL = {"latent_size": 4, "hidden_sizes": [8], "episode_length": 4096}


def written(path: Path, last: str) -> Path:
    """A million rows, of which the last is given."""
    with path.open("w") as stream:
        stream.write("age,strain,dose,gain\n")
        stream.writelines(
            f"{row % 97}.25,{('B6', 'BALB')[row % 3 % 2]},{('low', 'high')[row % 2]},{row % 11 / 10}\n"
            for row in range(ROWS - 1)
        )
        stream.write(last)
    return path


def declare(client: Client) -> None:
    context = {"kind": "table", "columns": COLUMNS}
    client.create_experiment("mice", ["low", "high"], context, config=SMALL)


def is_folded(client: Client, rewards: int) -> bool:
    return client.state("mice").counts["source_rewards"] >= rewards


def watching(service: ServiceProcess) -> list[Watch]:
    """Follows the memory of the service and of this process, which has the client."""
    watches = [Watch(service.process_id), Watch(psutil.Process().pid)]
    for watch in watches:
        watch.start()
    return watches


@pytest.mark.slow
def test_a_million_rows_are_checked_in_bounded_memory(tmp_path: Path):
    table = written(tmp_path / "mice.csv", "old,B6,low,1\n")
    assert table.stat().st_size > CLIENT_LIMIT
    with ServiceProcess(tmp_path) as service, Client(service.url) as client:
        declare(client)
        watches = watching(service)
        with pytest.raises(ProblemError, match="Column `age` takes a finite number") as caught:
            client.import_history("mice", table, arm="dose", reward="gain")
        grown, own = (watch.growth() for watch in watches)
        assert caught.value.status == 422
        assert f"{ROWS - 1}" in str(caught.value)
        assert client.state("mice").head_offset == 0
    assert grown < SERVICE_LIMIT
    assert own < CLIENT_LIMIT


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_million_rows_are_imported_and_learned_from_in_bounded_memory(
    tmp_path: Path, measured: Measured
):
    table = written(tmp_path / "mice.csv", "3.25,B6,low,1\n")
    with ServiceProcess(tmp_path) as service, Client(service.url) as client:
        declare(client)
        watches = watching(service)
        found = client.import_history("mice", table, arm="dose", reward="gain")
        assert (found.rows, found.rewards, found.status) == (ROWS, ROWS, "created")

        for part in range(1, 11):
            wait_until(partial(is_folded, client, part * ROWS // 10))
        again = client.import_history("mice", table, arm="dose", reward="gain")
        assert again.status == "already_recorded"
        assert client.state("mice").head_offset >= 1 + 2 * ROWS
        grown, own = (watch.growth() for watch in watches)
    measured.at_most("growth of the service in MiB", grown / MEBIBYTE, SERVICE_LIMIT / MEBIBYTE)
    assert own < CLIENT_LIMIT
