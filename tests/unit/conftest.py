"""The app on an empty SQLite file, for tests of its border."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api_tools import DOSES, Api, running_api
from tests.storage_tools import sqlite_url


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with running_api(sqlite_url(tmp_path / "daband.db"), max_body_bytes=65536) as running:
        assert (await running.http.post("/experiments", json=DOSES)).status_code == 201
        yield running
