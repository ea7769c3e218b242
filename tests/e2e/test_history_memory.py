"""A table of a million past rounds: sent and checked to its last row with bounded memory on both sides."""

from pathlib import Path

import psutil
import pytest

from daband_client import Client, ProblemError
from tests.e2e.test_upload_memory import MEBIBYTE, Watch
from tests.support.processes.service import ServiceProcess

ROWS = 1_000_000
SERVICE_LIMIT = 300 * MEBIBYTE
CLIENT_LIMIT = 16 * MEBIBYTE  # the file is larger
COLUMNS = [
    {"name": "age", "type": "numeric"},
    {"name": "strain", "type": "categorical", "values": ["B6", "BALB"]},
]


def written(path: Path) -> Path:
    """All rows fit but the last, so that everything is checked and nothing may be imported."""
    with path.open("w") as stream:
        stream.write("age,strain,dose,gain\n")
        for start in range(0, ROWS - 1, 1000):
            count = min(1000, ROWS - 1 - start)
            stream.write("3.25,BALB,low,0.5\n" * count)
        stream.write("old,B6,low,1\n")
    return path


@pytest.mark.slow
def test_a_million_rows_are_checked_in_bounded_memory(tmp_path: Path):
    table = written(tmp_path / "mice.csv")
    assert table.stat().st_size > CLIENT_LIMIT
    with ServiceProcess(tmp_path) as service, Client(service.url) as client:
        client.create_experiment("mice", ["low", "high"], {"kind": "table", "columns": COLUMNS})
        watches = [Watch(service.process_id), Watch(psutil.Process().pid)]
        for watch in watches:
            watch.start()
        with pytest.raises(ProblemError, match="Column `age` takes a finite number") as caught:
            client.import_history("mice", table, arm="dose", reward="gain")
        grown, own = (watch.growth() for watch in watches)
        assert caught.value.status == 422
        assert f"{ROWS - 1}" in str(caught.value)
        assert client.state("mice").head_offset == 0
    assert grown < SERVICE_LIMIT
    assert own < CLIENT_LIMIT
